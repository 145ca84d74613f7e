package strategy

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/node/kubeapi/kinds"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 500, time.UTC)

func kindOf(t *testing.T, o kinds.Object) *kinds.Kind {
	t.Helper()
	all, _, err := kinds.Scheme().ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	return kinds.ByKind(all[0])
}

func is(t *testing.T, err error, code int, text string) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("%v is no status", err)
	}
	if int(status.Status().Code) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("have %d %v, want %d %s", status.Status().Code, err, code, text)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	given := NewMetadata{Namespace: "ns", Now: noon, UID: "u", Suffix: "abcde"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		GenerateName: strings.Repeat("x", 70), UID: "theirs", Generation: 7, DeletionTimestamp: &metav1.Time{Time: noon},
		DeletionGracePeriodSeconds: new(int64(3)), CreationTimestamp: metav1.NewTime(noon.Add(time.Hour)),
	}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	if err := Create(kindOf(t, pod), pod, given); err != nil {
		t.Fatal(err)
	}
	want := metav1.ObjectMeta{
		GenerateName: strings.Repeat("x", 70), Name: strings.Repeat("x", 58) + "abcde", Namespace: "ns", UID: "u", Generation: 1,
		CreationTimestamp: metav1.NewTime(noon.Truncate(time.Second)),
	}
	if !equality.Semantic.DeepEqual(pod.ObjectMeta, want) {
		t.Errorf("metadata: %v", pod.ObjectMeta)
	}
	if pod.Status.Phase != "" || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("status %v, spec %v", pod.Status, pod.Spec)
	}
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		code int
		text string
	}{
		"another namespace":  {metav1.ObjectMeta{Name: "x", Namespace: "other"}, 400, "the namespace of the provided object does not match the namespace sent on the request"},
		"a resource version": {metav1.ObjectMeta{Name: "x", ResourceVersion: "1"}, 400, "resourceVersion should not be set on objects to be created"},
		"no name":            {metav1.ObjectMeta{}, 422, "name or generateName is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &corev1.ConfigMap{ObjectMeta: c.meta}
			is(t, Create(kindOf(t, o), o, given), c.code, c.text)
		})
	}
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	whole := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.PodSpec{
		Resources: &corev1.ResourceRequirements{Requests: one}, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: one}}},
	}}
	if err := Create(kindOf(t, whole), whole, given); err != nil || whole.Spec.Resources.Limits.Cpu().String() != "1" {
		t.Errorf("limits of a pod as a whole: %v, %v", err, whole.Spec.Resources)
	}
	node := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "dropped"}}
	if err := Create(kindOf(t, node), node, NewMetadata{}); err != nil || node.Namespace != "" {
		t.Errorf("kinds without namespaces: %v, %v", err, node.Namespace)
	}
}

func TestExists(t *testing.T) {
	t.Parallel()
	k := kindOf(t, &corev1.Pod{})
	there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	is(t, Exists(k, there, false), 409, `pods "x" already exists`)
	is(t, Exists(k, there, true), 409, "the server was not able to generate a unique name for the object")
	there.DeletionTimestamp = &metav1.Time{Time: noon}
	is(t, Exists(k, there, false), 409, `object is being deleted: pods "x" already exists`)
	late, changed := there.DeepCopy(), there.DeepCopy()
	late.Labels, changed.Spec.Hostname = map[string]string{"a": "b"}, "other"
	Default(k, late)
	Default(k, changed)
	if err := CheckTerminating(k, there, late); err != nil {
		t.Error(err)
	}
	is(t, CheckTerminating(k, there, changed), 403, "it is being deleted")
	claim := kindOf(t, &corev1.PersistentVolumeClaim{})
	is(t, CheckTerminating(claim, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}), 403, "it is being deleted")
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	old := func() *appsv1.Deployment {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Name: "x", Namespace: "ns", UID: "u", ResourceVersion: "5", Generation: 2, CreationTimestamp: metav1.NewTime(noon),
				DeletionTimestamp: &metav1.Time{Time: noon}, DeletionGracePeriodSeconds: new(int64),
			},
			Status: appsv1.DeploymentStatus{Replicas: 3},
		}
		Default(kindOf(t, d), d)
		return d
	}
	k := kindOf(t, old())
	for name, c := range map[string]struct {
		sub  string
		edit func(*appsv1.Deployment)
		// generation and labels are those after the update; code and text of the error.
		generation int64
		same       bool
		code       int
		text       string
	}{
		"nothing":          {edit: func(*appsv1.Deployment) {}, generation: 2, same: true},
		"metadata is kept": {edit: func(d *appsv1.Deployment) { d.ObjectMeta = metav1.ObjectMeta{Name: "x"} }, generation: 2, same: true},
		"annotations":      {edit: func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }, generation: 3}, // copied to ReplicaSets
		"labels":           {edit: func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, generation: 2},
		"no name":          {edit: func(d *appsv1.Deployment) { d.Name = "" }, code: 400, text: "name must be provided"},
		"status is kept":   {edit: func(d *appsv1.Deployment) { d.Status.Replicas = 9 }, generation: 2, same: true},
		"defaults":         {edit: func(d *appsv1.Deployment) { d.Spec.Replicas = nil }, generation: 2, same: true},
		"spec":             {edit: func(d *appsv1.Deployment) { *d.Spec.Replicas = 9 }, generation: 3},
		"status alone": {sub: "status", edit: func(d *appsv1.Deployment) {
			d.Status.Replicas, d.Spec, d.Labels = 9, appsv1.DeploymentSpec{}, map[string]string{"a": "b"}
		}, generation: 2},
		"zero is any version": {edit: func(d *appsv1.Deployment) { d.ResourceVersion = "0" }, generation: 2, same: true},
		"version":             {edit: func(d *appsv1.Deployment) { d.ResourceVersion = "4" }, code: 409, text: `Operation cannot be fulfilled on deployments.apps "x": the object has been modified; please apply your changes to the latest version and try again`},
		"uid":                 {edit: func(d *appsv1.Deployment) { d.UID = "v" }, code: 409, text: "Precondition failed: UID in precondition: v, UID in object meta: u"},
		"name":                {edit: func(d *appsv1.Deployment) { d.Name = "y" }, code: 400, text: "the name of the object (y) does not match the name on the URL (x)"},
		"namespace":           {edit: func(d *appsv1.Deployment) { d.Namespace = "y" }, code: 400, text: "the namespace of the provided object does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, now := old(), old()
			c.edit(now)
			err := Update(k, c.sub, before, now)
			if c.code != 0 {
				is(t, err, c.code, c.text)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if now.Generation != c.generation || now.UID != "u" || now.DeletionTimestamp == nil || now.CreationTimestamp.IsZero() {
				t.Errorf("metadata %v", now.ObjectMeta)
			}
			if Same(before, now) != c.same {
				t.Errorf("same is %v", !c.same)
			}
			if c.sub == "status" && (now.Status.Replicas != 9 || len(now.Labels) > 0 || *now.Spec.Replicas != 1) {
				t.Errorf("status: %v", now)
			}
			if !equality.Semantic.DeepEqual(before, old()) {
				t.Error("the old object was changed")
			}
		})
	}
}

func TestSameIgnoresTimesOfManagers(t *testing.T) {
	t.Parallel()
	entry := func(at time.Time) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: "x", Time: &metav1.Time{Time: at}}}
	}
	a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", ManagedFields: entry(noon)}}
	b := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2", ManagedFields: entry(noon.Add(time.Hour))}}
	if !Same(a, b) || a.ManagedFields[0].Time == nil {
		t.Error("they differ, or were changed")
	}
	b.ManagedFields[0].Manager = "y"
	if Same(a, b) {
		t.Error("another manager is a change")
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	pod := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: "5"}}
		if edit != nil {
			edit(p)
		}
		return p
	}
	going := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(20 * time.Second)}, new(int64(20))
	}
	grace := func(s int64) metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: &s} }
	for name, c := range map[string]struct {
		edit    func(*corev1.Pod)
		options metav1.DeleteOptions
		grace   int64
		again   bool
		keep    bool
	}{
		"as Kubernetes":              {grace: 30},
		"as the spec":                {edit: func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(5)) }, grace: 5},
		"as asked":                   {options: grace(7), grace: 7},
		"negative":                   {options: grace(-7), grace: 1},
		"kill":                       {options: grace(0), grace: 0},
		"ended":                      {edit: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, options: grace(7), grace: 0},
		"again":                      {edit: going, grace: 20, again: true},
		"again with less":            {edit: going, options: grace(3), grace: 3},
		"again with more":            {edit: going, options: grace(300), grace: 20, again: true},
		"again, but the time is out": {edit: func(p *corev1.Pod) { going(p); p.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Minute)} }, options: grace(9), grace: 1},
		"finalizers":                 {edit: func(p *corev1.Pod) { p.Finalizers = []string{"a/b"} }, grace: 30, keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := pod(c.edit)
			before := old.DeepCopy()
			d, err := Delete(kindOf(t, old), old, &c.options, noon)
			if err != nil {
				t.Fatal(err)
			}
			if *d.GraceSeconds != c.grace || d.AlreadyDeleting != c.again || (d.Keep != nil) != c.keep || d.Answer.GetDeletionTimestamp() == nil {
				t.Errorf("have %v seconds, %+v", *d.GraceSeconds, d)
			}
			if !equality.Semantic.DeepEqual(old, before) {
				t.Error("the pod was changed")
			}
		})
	}
}

func TestDeleteOthers(t *testing.T) {
	t.Parallel()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: "5"}}
	k := kindOf(t, m)
	d, err := Delete(k, m, &metav1.DeleteOptions{}, noon)
	if err != nil || d.Keep != nil || d.Answer != nil || d.GraceSeconds != nil || d.AlreadyDeleting {
		t.Errorf("a ConfigMap goes at once: %+v, %v", d, err)
	}
	m.Finalizers = []string{"a/b"}
	d, err = Delete(k, m, &metav1.DeleteOptions{}, noon)
	if err != nil || d.Keep == nil || d.Keep.GetDeletionTimestamp() == nil || d.Answer == nil {
		t.Errorf("finalizers keep it: %+v, %v", d, err)
	}
	if d, err = Delete(k, d.Keep, &metav1.DeleteOptions{}, noon); err != nil || !d.AlreadyDeleting {
		t.Errorf("a second delete changes nothing: %+v, %v", d, err)
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	d, err = Delete(kindOf(t, n), n, &metav1.DeleteOptions{}, noon)
	ends, ok := d.Namespace(n)
	if err != nil || !ok || ends.Status.Phase != corev1.NamespaceTerminating || ends.DeletionTimestamp == nil {
		t.Errorf("namespace: %v, %v", ends, err)
	}
	if _, ok := d.Namespace(m); ok {
		t.Error("a ConfigMap is no Namespace")
	}
	if s := Deleted(k, "x", "u"); s.Status != metav1.StatusSuccess || s.Details.Kind != "configmaps" || s.Details.UID != "u" {
		t.Errorf("status: %v", s)
	}
}

func TestDeleteRefusals(t *testing.T) {
	t.Parallel()
	orphan, unknown, foreground := metav1.DeletePropagationOrphan, metav1.DeletionPropagation("x"), metav1.DeletePropagationForeground
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: "5"}}
	for name, c := range map[string]struct {
		options metav1.DeleteOptions
		code    int
		text    string
	}{
		"uid":     {metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("v"))}}, 409, "the UID in the precondition (v) does not match the UID in record (u)"},
		"version": {metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("4")}}, 409, "the ResourceVersion in the precondition (4) does not match the ResourceVersion in record (5)"},
		"orphan":  {metav1.DeleteOptions{PropagationPolicy: &orphan}, 422, `propagationPolicy: Unsupported value: "Orphan"`},
		"unknown": {metav1.DeleteOptions{PropagationPolicy: &unknown}, 422, `propagationPolicy: Unsupported value: "x"`},
		"old":     {metav1.DeleteOptions{OrphanDependents: new(true)}, 422, "orphaning dependents is not supported"},               //nolint:staticcheck // clients may still send it
		"both":    {metav1.DeleteOptions{OrphanDependents: new(false), PropagationPolicy: &foreground}, 422, "cannot be both set"}, //nolint:staticcheck // clients may still send it
		"dry run": {metav1.DeleteOptions{DryRun: []string{"x"}}, 422, "dryRun"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Delete(kindOf(t, m), m, &c.options, noon)
			is(t, err, c.code, c.text)
		})
	}
}

func TestDependents(t *testing.T) {
	t.Parallel()
	object := func(name string, owners ...types.UID) kinds.Object {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		for _, uid := range owners {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{UID: uid})
		}
		return m
	}
	all := []kinds.Object{
		object("grandchild", "child"), object("child", "owner"), object("shared", "owner", "other"), object("free"), object("of both", "owner", "child"),
		object("ring", "ring"), object("of one that is gone", "gone", "owner"), object("orphan", "gone"),
	}
	exists := func(r metav1.OwnerReference) bool { return r.UID != "gone" }
	var names []string
	for _, o := range Dependents([]kinds.Object{object("owner")}, all, exists) {
		names = append(names, o.GetName())
	}
	if got := strings.Join(names, ", "); got != "child, of both, of one that is gone, grandchild" {
		t.Errorf("have %s", got)
	}
	if found := Dependents([]kinds.Object{&corev1.ConfigMap{}}, []kinds.Object{object("x", "")}, exists); len(found) > 0 {
		t.Errorf("an owner without a uid has %v", found)
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	meta := metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "u", ResourceVersion: "5"}
	for _, o := range []kinds.Object{
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector}, Status: appsv1.DeploymentStatus{Replicas: 1}},
		&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2)), Selector: selector}, Status: appsv1.ReplicaSetStatus{Replicas: 1}},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: selector}, Status: appsv1.StatefulSetStatus{Replicas: 1}},
	} {
		k := kindOf(t, o)
		s, err := ScaleOf(o)
		if err != nil || s.Spec.Replicas != 2 || s.Status.Replicas != 1 || s.Status.Selector != "a=b" || s.ResourceVersion != "5" || s.Kind != "Scale" {
			t.Fatalf("%T: %v, %v", o, s, err)
		}
		s.Spec.Replicas = 7
		now, err := SetScale(k, o, s)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := ScaleOf(now); again.Spec.Replicas != 7 {
			t.Errorf("%T has %d replicas", o, again.Spec.Replicas)
		}
		for replicas, text := range map[int32]string{-1: "must be greater than or equal to 0", MaxReplicas + 1: "must be less than or equal to 1000"} {
			s.Spec.Replicas = replicas
			_, err := SetScale(k, o, s)
			is(t, err, 422, text)
		}
		_, err = SetScale(k, o, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "y"}})
		is(t, err, 400, "does not match the name on the URL")
	}
	m := &corev1.ConfigMap{}
	if _, err := ScaleOf(m); err == nil {
		t.Error("a ConfigMap has no scale")
	}
	if _, err := SetScale(kindOf(t, m), m, &autoscalingv1.Scale{}); err == nil {
		t.Error("a ConfigMap has no scale")
	}
	if _, err := ScaleOf(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Operator: "x"}}}}}); err == nil {
		t.Error("a selector that is none")
	}
}

func TestResize(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				l[name] = resource.MustParse(text)
			}
		}
		return l
	}
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}},
		Containers:     []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: list("1", ""), Limits: list("2", "1Gi")}}},
	}}
	k := kindOf(t, old)
	for _, tt := range []struct {
		name string
		edit func(spec *corev1.PodSpec)
		want string
	}{
		{"nothing", func(*corev1.PodSpec) {}, ""},
		{"both", func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = list("3", "2Gi") }, ""},
		{"more", func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("1", "1Gi") }, ""},
		{"an init container", func(s *corev1.PodSpec) { s.InitContainers[0].Resources.Limits = list("1", "") }, ""},
		{"the pod", func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{Limits: list("3", "")} }, ""},
		{"an image, which is ignored", func(s *corev1.PodSpec) { s.Containers[0].Image = "other" }, ""},
		{"another name", func(s *corev1.PodSpec) { s.Containers[0].Name = "d" }, "spec: Forbidden"},
		{"no containers", func(s *corev1.PodSpec) { s.Containers = nil }, "spec: Forbidden"},
		{"a policy", func(s *corev1.PodSpec) {
			s.InitContainers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU}}
		}, "spec: Forbidden: only cpu and memory resources are mutable"},
		{"another resource", func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		}, "spec: Forbidden: only cpu and memory resources are mutable"},
		{"a limit less", func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = list("2", "") }, "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"},
		{"no requests", func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = nil }, "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"},
		{"another class", func(s *corev1.PodSpec) {
			s.InitContainers[0].Resources.Limits, s.Containers[0].Resources.Requests = list("2", "1Gi"), list("2", "1Gi")
		}, "Pod QOS Class may not change as a result of resizing"},
	} {
		now := old.DeepCopy()
		tt.edit(&now.Spec)
		err := Resize(k, old, now)
		if tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want != "" {
			is(t, err, 422, tt.want)
		}
	}
	podLevel := old.DeepCopy()
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Limits: list("3", "2Gi")}
	kept := old.DeepCopy()
	if err := Resize(k, podLevel, kept); err != nil || !equality.Semantic.DeepEqual(kept, podLevel) {
		t.Errorf("a client that does not know pod-level resources: %v, %v", kept.Spec.Resources, err)
	}
	limited := old.DeepCopy()
	limited.Spec.InitContainers[0].Resources = corev1.ResourceRequirements{Requests: list("1", ""), Limits: list("1", "")}
	added := limited.DeepCopy()
	added.Spec.Resources = &corev1.ResourceRequirements{Requests: list("1", "")}
	if err := Resize(k, limited, added); err != nil || !equality.Semantic.DeepEqual(added.Spec.Resources.Limits, list("2", "")) {
		t.Errorf("the limits of the containers are not those of the pod: %v, %v", added.Spec.Resources, err)
	}
	less := podLevel.DeepCopy()
	less.Spec.Resources.Limits = list("4", "")
	is(t, Resize(k, podLevel, less), 422, "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed")
	if less.Spec.Resources.Limits.Cpu().String() != "4" || old.Spec.Containers[0].Resources.Limits.Cpu().String() != "2" {
		t.Error("it changes its arguments")
	}
	wanted, more := old.DeepCopy(), old.DeepCopy()
	wanted.Spec.Containers[0].Resources.Limits = list("3", "2Gi")
	more.Spec.Containers[0].Resources.Limits = list("3", "2Gi")
	more.Spec.Containers[0].Image, more.Spec.HostNetwork, more.Labels = "other", true, map[string]string{"a": "b"} // ignored, as in kube-apiserver
	if err := Resize(k, old, more); err != nil || !equality.Semantic.DeepEqual(more, wanted) {
		t.Errorf("%v, %v", more, err)
	}
}

func TestBind(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	k := kindOf(t, pod)
	bind := func(kind, name string) error {
		return Bind(k, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: kind, Name: name}}, "here")
	}
	if err := bind("Node", "here"); err != nil {
		t.Error(err)
	}
	is(t, bind("Node", "there"), 409, `Operation cannot be fulfilled on pods/binding "x": pod x is already assigned to node "here"`)
	other := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "y"}, Target: corev1.ObjectReference{Name: "here"}}
	is(t, Bind(k, pod, other, "here"), 400, "name in URL does not match name in Binding object")
	is(t, bind("Pod", "here"), 422, "target.kind: Unsupported value")
	is(t, bind("", ""), 422, "target.name: Required value")
}

func TestGateConditions(t *testing.T) {
	t.Parallel()
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status}
	}
	old := &corev1.Pod{
		Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "new"}, {ConditionType: "changed"}, {ConditionType: "gone"}, {ConditionType: "never"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			condition("Ready", "False"), condition("changed", "False"), condition("gone", "True"),
		}},
	}
	now := old.DeepCopy()
	now.Status = corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{
		condition("Ready", "True"), condition("changed", "True"), condition("new", "True"), condition("other", "True"),
	}}
	GateConditions(old, now)
	want := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		condition("Ready", "False"), condition("changed", "True"), condition("new", "True"),
	}}
	if !equality.Semantic.DeepEqual(now.Status, want) {
		t.Errorf("have %v", now.Status)
	}
	if !SameStatus(old, old) || SameStatus(old, now) || !SameStatus(&corev1.ConfigMap{}, &corev1.ConfigMap{}) {
		t.Error("SameStatus")
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	k := kindOf(t, &corev1.Pod{})
	is(t, Elsewhere(k, "web", "/etc/x.yaml:1"), 403, `pods "web" is forbidden: it is defined in /etc/x.yaml:1; change it there`)
	is(t, NamespaceMissing("x"), 404, `namespaces "x" not found`)
	err := NamespaceEnds(k, "web", "x")
	is(t, err, 403, "unable to create new content in namespace x because it is being terminated")
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Error("no cause")
	}
}

func TestManager(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"given", "kubectl/v1", "given"},
		{"", "kubectl/v1.37 (linux/amd64)", "kubectl"},
		{"", "", "unknown"},
		{"", "/x", "unknown"},
		{"", "a\x01b\u00e4/1", "ab"},
		{"", strings.Repeat("x", 200), strings.Repeat("x", 128)},
	} {
		if got := Manager(c[0], c[1]); got != c[2] {
			t.Errorf("%q, %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i:1", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}}}
	for _, c := range []struct {
		o    kinds.Object
		want func(kinds.Object) bool
	}{
		{&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}, func(o kinds.Object) bool {
			s := o.(*appsv1.Deployment).Spec
			return *s.Replicas == 1 && *s.ProgressDeadlineSeconds == 600 && s.Strategy.RollingUpdate.MaxSurge.StrVal == "25%" &&
				s.Template.Spec.RestartPolicy == corev1.RestartPolicyAlways && s.Template.Spec.Containers[0].Resources.Requests == nil
		}},
		{&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}}, func(o kinds.Object) bool {
			return o.(*appsv1.Deployment).Spec.Strategy.RollingUpdate == nil
		}},
		{&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template, VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, 1)}}, func(o kinds.Object) bool {
			s := o.(*appsv1.StatefulSet).Spec
			return *s.UpdateStrategy.RollingUpdate.Partition == 0 && s.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal == 1 && s.PodManagementPolicy == appsv1.OrderedReadyPodManagement &&
				s.VolumeClaimTemplates[0].Status.Phase == corev1.ClaimPending && s.PersistentVolumeClaimRetentionPolicy.WhenScaled == appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}},
		{&appsv1.DaemonSet{}, func(o kinds.Object) bool {
			s := o.(*appsv1.DaemonSet).Spec
			return s.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal == 1 && *s.RevisionHistoryLimit == 10
		}},
		{&appsv1.ReplicaSet{}, func(o kinds.Object) bool { return *o.(*appsv1.ReplicaSet).Spec.Replicas == 1 }},
		{&batchv1.Job{}, func(o kinds.Object) bool {
			s := o.(*batchv1.Job).Spec
			return *s.Completions == 1 && *s.BackoffLimit == 6 && s.Template.Spec.RestartPolicy == ""
		}},
		{&batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(2)), BackoffLimitPerIndex: new(int32(1)), PodFailurePolicy: &batchv1.PodFailurePolicy{}}}, func(o kinds.Object) bool {
			s := o.(*batchv1.Job).Spec
			return s.Completions == nil && s.BackoffLimit == nil && *s.PodReplacementPolicy == batchv1.Failed
		}},
		{&batchv1.CronJob{}, func(o kinds.Object) bool {
			s := o.(*batchv1.CronJob).Spec
			return s.ConcurrencyPolicy == batchv1.AllowConcurrent && *s.SuccessfulJobsHistoryLimit == 3 && *s.FailedJobsHistoryLimit == 1
		}},
		{&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, SessionAffinity: corev1.ServiceAffinityClientIP, Ports: []corev1.ServicePort{{Port: 80}, {Port: 81, TargetPort: intstr.FromString("http")}}}}, func(o kinds.Object) bool {
			s := o.(*corev1.Service).Spec
			return s.Ports[0].TargetPort.IntVal == 80 && s.Ports[1].TargetPort.StrVal == "http" && *s.AllocateLoadBalancerNodePorts &&
				*s.SessionAffinityConfig.ClientIP.TimeoutSeconds == 10800 && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyCluster
		}},
		{&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}, func(o kinds.Object) bool {
			return o.(*corev1.Service).Spec.InternalTrafficPolicy == nil
		}},
		{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, func(o kinds.Object) bool {
			n := o.(*corev1.Namespace)
			return n.Labels[corev1.LabelMetadataName] == "x" && n.Status.Phase == corev1.NamespaceActive && len(n.Spec.Finalizers) == 1
		}},
		{&schedulingv1.PriorityClass{}, func(o kinds.Object) bool {
			return *o.(*schedulingv1.PriorityClass).PreemptionPolicy == corev1.PreemptLowerPriority
		}},
		{&storagev1.StorageClass{}, func(o kinds.Object) bool {
			s := o.(*storagev1.StorageClass)
			return *s.ReclaimPolicy == corev1.PersistentVolumeReclaimDelete && *s.VolumeBindingMode == storagev1.VolumeBindingImmediate
		}},
		{&corev1.PersistentVolumeClaim{}, func(o kinds.Object) bool {
			return o.(*corev1.PersistentVolumeClaim).Status.Phase == corev1.ClaimPending
		}},
		{&corev1.PersistentVolume{}, func(o kinds.Object) bool { return o.(*corev1.PersistentVolume).Status.Phase == corev1.VolumePending }},
		{&coordinationv1.Lease{}, func(kinds.Object) bool { return true }},
	} {
		k := kindOf(t, c.o)
		Default(k, c.o)
		if !c.want(c.o) {
			t.Errorf("%T: %+v", c.o, c.o)
		}
		again := c.o.DeepCopyObject().(kinds.Object)
		if Default(k, again); !equality.Semantic.DeepEqual(again, c.o) {
			t.Errorf("%T: twice is not once", c.o)
		}
	}
}
