package kubewrite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
	"monopod/node/localapi"
	"monopod/watcher/applied"
)

const staticManifests = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: "1"}
---
apiVersion: v1
kind: Pod
metadata: {name: static}
spec: {containers: [{name: c, image: example.com/app:1}]}
`

func deployment(name string, replicas int32) *appsv1.Deployment {
	o := kinds.ByKind(appsv1.SchemeGroupVersion.WithKind("Deployment")).New().(*appsv1.Deployment)
	o.Namespace, o.Name, o.UID, o.Generation = "default", name, types.UID("uid-"+name), 1
	labels := map[string]string{"app": name}
	o.Spec = appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}}
	o.Spec.Template.Labels, o.Spec.Template.Spec = labels, podOf("x").Spec
	o.Spec.Template.Spec.NodeName = ""
	o.Status.Replicas = 5
	return o
}

// TestTheRevisionOfADeploymentIsNotStored: clients send back what they have read.
func TestTheRevisionOfADeploymentIsNotStored(t *testing.T) {
	for annotations, want := range map[string]string{"": "", "team": "team"} {
		o := deployment("front", 1)
		o.Annotations = map[string]string{"deployment.kubernetes.io/revision": "3"}
		if annotations != "" {
			o.Annotations[annotations] = "a"
		}
		document, err := manifestOf(o)
		if err != nil || strings.Contains(string(document), "revision") || strings.Contains(string(document), "annotations") != (want != "") || !strings.Contains(string(document), want) {
			t.Errorf("%s, %v", document, err)
		}
		if len(o.Annotations) == 0 {
			t.Error("the object was changed")
		}
	}
}

func TestWhatIsWrittenIsStoredAndDesiredBeforeTheAnswer(t *testing.T) {
	dir := t.TempDir()
	d := newDaemon(t, dir, "")
	created := metav1.Now().Rfc3339Copy()
	web := podOf("web")
	web.CreationTimestamp, web.Labels, web.Annotations = created, map[string]string{"a": "b"}, map[string]string{"c": "d"}
	web.Finalizers, web.ResourceVersion = []string{"example.com/wait"}, "17"
	web.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}}
	if warnings := d.write(put(web, configMap("app", "1"), deployment("front", 2))); len(warnings) > 0 {
		t.Errorf("warnings %q", warnings)
	}
	o, given := d.desired("Pod", "web")
	if o == nil || given == nil || o.(*corev1.Pod).UID != "uid-web" || !given.CreationTimestamp.Equal(&created) || given.Generation != 1 || len(given.Finalizers) != 1 || len(given.ManagedFields) != 1 {
		t.Fatalf("desired is %+v with %+v", o, given)
	}
	pod := o.(*corev1.Pod)
	if pod.Labels["a"] != "b" || pod.Annotations["c"] != "d" || pod.Status.Phase != "" {
		t.Errorf("the pod is %+v", pod)
	}
	if o, given := d.desired("Deployment", "front"); o == nil || o.(*appsv1.Deployment).UID != "uid-front" || given.Generation != 1 || o.(*appsv1.Deployment).Status.Replicas != 0 {
		t.Errorf("the Deployment is %+v", o)
	}
	for _, kind := range []manifests.ObjectID{id("Pod", "web"), id("ConfigMap", "app"), id("Deployment", "front")} {
		document, err := d.store.Get(kind)
		for _, word := range []string{"uid", "status", "creationTimestamp", "resourceVersion", "managedFields", "finalizers", "generation", "null"} {
			if err != nil || strings.Contains(string(document), word) {
				t.Errorf("%s has %s: %s, %v", kind, word, document, err)
			}
		}
	}
	grace := int64(0)
	d.write(kubeapi.Change{Put: put(configMap("next", "1")).Put, Remove: []kubeapi.Removal{{Ref: ref("Pod", "default", "web"), UID: "uid-web", GraceSeconds: &grace}, {Ref: ref("ConfigMap", "default", "app")}}})
	for _, gone := range []manifests.ObjectID{id("Pod", "web"), id("ConfigMap", "app")} {
		if o, _ := d.desired(gone.Kind, gone.Name); o != nil || d.cfg.Applier.Stored(gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	if o, _ := d.desired("ConfigMap", "next"); o == nil {
		t.Error("what is stored by the same change is missing")
	}
}

// TestEveryKindOfManifestsCanBeWritten, as its type encodes it.
func TestEveryKindOfManifestsCanBeWritten(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	meta := metav1.ObjectMeta{Name: "x", UID: "u"}
	named := metav1.ObjectMeta{Namespace: "default", Name: "x", UID: "u"}
	template := deployment("x", 1).Spec.Template
	once := template
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	set := appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{ServiceName: "x", Selector: deployment("x", 1).Spec.Selector, Template: template}}
	every := []kinds.Object{
		&corev1.Secret{ObjectMeta: named, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": {0, 255}}},
		&corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Port: 80}}}},
		&storagev1.StorageClass{ObjectMeta: meta, Provisioner: "example.com/p"},
		&nodev1.RuntimeClass{ObjectMeta: meta, Handler: "runc"},
		&schedulingv1.PriorityClass{ObjectMeta: meta, Value: 5},
		&set,
		&appsv1.DaemonSet{ObjectMeta: named, Spec: appsv1.DaemonSetSpec{Selector: deployment("x", 1).Spec.Selector, Template: template}},
		&appsv1.ReplicaSet{ObjectMeta: named, Spec: appsv1.ReplicaSetSpec{Selector: deployment("x", 1).Spec.Selector, Template: template}},
	}
	d.write(put(every...))
	for _, o := range every {
		kind, err := kindOf(o)
		if err != nil {
			t.Fatal(err)
		}
		if got, given := d.desired(kind.Kind, "x"); got == nil || given == nil || given.UID != "u" {
			t.Errorf("%s: desired is %+v with %+v", kind.Kind, got, given)
		}
		if !d.Definition(ref(kind.Kind, o.GetNamespace(), "x")).Applied {
			t.Errorf("%s is not applied", kind.Kind)
		}
	}
}

func TestADryRunStoresNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.write(put(configMap("kept", "1")))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}}
	node := d.node.DeepCopy()
	node.Spec.Unschedulable = true
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	c := kubeapi.Change{Put: []kinds.Object{podOf("web"), configMap("new", "1"), lease, node, space}, Remove: remove("ConfigMap", "kept").Remove}
	if _, err := d.Write(t.Context(), true, func() (kubeapi.Change, error) { return c, nil }); err != nil {
		t.Fatal(err)
	}
	if d.cfg.Applier.Stored(id("Pod", "web")) || !d.cfg.Applier.Stored(id("ConfigMap", "kept")) || len(all(d.cfg.Memory)) > 0 || len(d.cordons) > 0 {
		t.Errorf("stored: %v, cordons %v", all(d.cfg.Memory), d.cordons)
	}
	web := podOf("web")
	web.Spec.Containers[0].Image = ""
	if _, err := d.Write(t.Context(), true, func() (kubeapi.Change, error) { return put(web), nil }); !apierrors.IsInvalid(err) {
		t.Errorf("a dry run does not validate: %v", err)
	}
}

func TestWhatIsInvalidIsAnsweredWithItsCauses(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	web := podOf("web")
	web.Spec.Containers[0].Image, web.Spec.Containers[0].TerminationMessagePolicy = "", "Never"
	err := d.fails(put(configMap("good", "1"), web))
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsInvalid(err) || status.Status().Code != http.StatusUnprocessableEntity {
		t.Fatalf("%v", err)
	}
	details := status.Status().Details
	if details.Kind != "Pod" || details.Name != "default/web" && details.Name != "web" {
		t.Errorf("details of %s %s", details.Kind, details.Name)
	}
	var fields []string
	for _, c := range details.Causes {
		fields = append(fields, c.Field+" "+string(c.Type))
		if c.Message == "" {
			t.Errorf("cause %+v", c)
		}
	}
	slices.Sort(fields)
	if want := []string{"spec.containers[0].image FieldValueRequired", "spec.containers[0].terminationMessagePolicy FieldValueNotSupported"}; !slices.Equal(fields, want) {
		t.Errorf("fields %q, want %q: %v", fields, want, err)
	}
	if !strings.HasPrefix(err.Error(), `Pod "web" is invalid: [`) || d.cfg.Applier.Stored(id("ConfigMap", "good")) {
		t.Errorf("%v", err)
	}
}

// TestNothingIsReadLeniently: what podman accepts in a file is an error here, as in Kubernetes.
func TestNothingIsReadLeniently(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	web, empty := podOf("web"), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "empty"}}
	web.Spec.Containers[0].Name = ""
	for want, o := range map[string]kinds.Object{"spec.containers[0].name": web, "spec.ports": empty} {
		err := d.fails(put(o))
		if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Details == nil || len(status.Status().Details.Causes) != 1 || status.Status().Details.Causes[0].Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestWhatIsImmutableStaysAsItIs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	yes := true
	fixed := configMap("fixed", "1")
	fixed.Immutable = &yes
	d.write(put(fixed))
	fixed = fixed.DeepCopy()
	fixed.Labels = map[string]string{"a": "b"}
	d.write(put(fixed))
	fixed = fixed.DeepCopy()
	fixed.Data["a"] = "2"
	if err := d.fails(put(fixed)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsDefinedElsewhereIsRefusedForGood(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), staticManifests)
	for name, c := range map[string]struct {
		change kubeapi.Change
		says   string
	}{
		"a pod of a file":       {put(podOf("static")), "Pod default/static is defined in"},
		"a ConfigMap of a file": {put(configMap("settings", "2")), "static/all.yaml:3; change it there"},
		"the removal of one":    {remove("ConfigMap", "settings"), "; remove it there"},
		"one of several":        {put(configMap("new", "1"), configMap("settings", "2")), "ConfigMap default/settings is defined in"},
		"what is computed":      {put(&corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}}), "managed by monopod"},
		"removal of computed":   {remove("Endpoints", "e"), "managed by monopod"},
	} {
		if err := d.fails(c.change); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d.cfg.Applier.Stored(id("ConfigMap", "new")) {
		t.Error("a part of a refused change is stored")
	}
	for name, c := range map[string]struct {
		of      kubeapi.Ref
		applied bool
		place   string
	}{
		"a file":     {ref("ConfigMap", "default", "settings"), false, "static/all.yaml:3"},
		"nowhere":    {ref("ConfigMap", "default", "none"), false, ""},
		"a Lease":    {ref("Lease", "default", "any"), true, ""},
		"the Node":   {ref("Node", "", "machine"), true, ""},
		"a computed": {ref("Endpoints", "default", "e"), false, "computes it"},
	} {
		if got := d.Definition(c.of); got.Applied != c.applied || !strings.Contains(got.Place, c.place) || (got.Place == "") != (c.place == "") || got.Deletable {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAnErrorOfTheDecisionChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	conflict := apierrors.NewConflict(ref("ConfigMap", "", "").Kind.Resource().GroupResource(), "x", fmt.Errorf("changed"))
	_, err := d.Write(t.Context(), false, func() (kubeapi.Change, error) { return put(configMap("x", "1")), conflict })
	if !apierrors.IsConflict(err) || d.cfg.Applier.Stored(id("ConfigMap", "x")) {
		t.Errorf("%v", err)
	}
	d.write(put(configMap("x", "1"))) // the lock is free
}

// TestObjectsKeepTheirUIDs: those that were applied without one, too. A pod must not be replaced because the API has changed its labels.
func TestObjectsKeepTheirUIDs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: example.com/app:1}]}\n"
	request := localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "web.yaml", Content: []byte(text)}}}
	if _, err := d.cfg.Applier.Apply(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	web := podOf("web")
	web.UID, web.Labels = "of the runtime", map[string]string{"a": "b"}
	for range 2 {
		d.write(put(web))
		if o, given := d.desired("Pod", "web"); o.(*corev1.Pod).UID != "" || given.UID != "" || o.(*corev1.Pod).Labels["a"] != "b" {
			t.Errorf("%+v with %+v", o, given)
		}
	}
	d.write(remove("Pod", "web"))
	web.UID = "another"
	d.write(put(web))
	if o, _ := d.desired("Pod", "web"); o.(*corev1.Pod).UID != "another" {
		t.Errorf("%+v", o)
	}
}

// TestMonopodApplyKeepsWhatTheAPIHasGiven, and says "unchanged" of what the API has only completed.
func TestMonopodApplyKeepsWhatTheAPIHasGiven(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	web, settings := podOf("web"), configMap("settings", "1")
	web.Spec.NodeName, web.Spec.ServiceAccountName, web.Spec.DeprecatedServiceAccount = "", "", ""
	web.Finalizers, web.OwnerReferences = []string{"example.com/f"}, []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "settings", UID: "uid-settings"}}
	d.write(put(web, settings))
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web%s}\nspec: {containers: [{name: c, image: 'example.com/app:%d'}]}\n"
	data := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: '%d'}\n"
	for i, step := range []struct {
		text       string
		verdict    localapi.Verdict
		kind, name string
		generation int64
	}{
		{fmt.Sprintf(pod, "", 1), localapi.Unchanged, "Pod", "web", 1},
		{fmt.Sprintf(pod, ", labels: {a: b}", 1), localapi.Configured, "Pod", "web", 1},
		{fmt.Sprintf(pod, ", labels: {a: b}", 2), localapi.Configured, "Pod", "web", 2},
		{fmt.Sprintf(pod, ", labels: {a: b}", 2), localapi.Unchanged, "Pod", "web", 2},
		{fmt.Sprintf(data, 1), localapi.Unchanged, "ConfigMap", "settings", 0},
		{fmt.Sprintf(data, 2), localapi.Configured, "ConfigMap", "settings", 0},
	} {
		r, err := d.cfg.Applier.Apply(t.Context(), localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "a.yaml", Content: []byte(step.text)}}})
		if err != nil || len(r.Objects) != 1 || r.Objects[0].Verdict != step.verdict {
			t.Errorf("step %d: %+v, %v; want %s", i, r, err, step.verdict)
		}
		note := d.store.Note(id(step.kind, step.name))
		if _, given := d.desired(step.kind, step.name); note == nil || note.UID != types.UID("uid-"+step.name) || note.Generation != step.generation || !reflect.DeepEqual(given, note) {
			t.Errorf("step %d: the note is %+v, visible is %+v", i, note, given)
		}
	}
	if note := d.store.Note(id("Pod", "web")); len(note.Finalizers) != 1 || len(note.OwnerReferences) != 1 {
		t.Errorf("%+v", note)
	}
	r, err := d.cfg.Applier.Delete(t.Context(), localapi.DeleteRequest{Objects: []localapi.ObjectRef{{Kind: "Pod", Namespace: "default", Name: "web"}}})
	if err != nil || len(r.Objects) != 1 || d.store.Note(id("Pod", "web")) != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestBothWaysToWriteTakeTurns: a count is raised through both, and no step is lost.
func TestBothWaysToWriteTakeTurns(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	const each = 5
	done := make(chan error, 2)
	go func() {
		for i := range each {
			_, err := d.Write(context.WithoutCancel(t.Context()), false, func() (kubeapi.Change, error) {
				note := d.store.Note(id("ConfigMap", "shared"))
				o := configMap("shared", fmt.Sprint("api", i))
				if o.Generation = 1; note != nil {
					o.Generation = note.Generation + 1
				}
				return put(o), nil
			})
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	go func() {
		for i := range each {
			text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: cli%d}\n", i)
			if _, err := d.cfg.Applier.Apply(context.WithoutCancel(t.Context()), localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "a.yaml", Content: []byte(text)}}}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if note := d.store.Note(id("ConfigMap", "shared")); note == nil || note.Generation < each {
		t.Errorf("%+v", note)
	}
}

func TestNamespacesAndServiceAccountsSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDaemon(t, dir, "")
	changed, cancel := d.state.Subscribe()
	defer cancel()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "u1", Labels: map[string]string{"a": "b"}}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}
	space.CreationTimestamp = metav1.Now().Rfc3339Copy()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "ci", UID: "u2"}}
	d.write(put(space, account))
	<-changed
	before := all(d.cfg.Memory)
	next := NewMemory(d.store)
	after := all(next)
	if len(before) != 2 || len(after) != 2 {
		t.Fatalf("%v, after a restart %v", before, after)
	}
	for i := range before {
		if !reflect.DeepEqual(before[i], after[i]) || before[i].GetUID() == "" || before[i] != all(d.cfg.Memory)[i] {
			t.Errorf("%+v\nafter a restart %+v", before[i], after[i])
		}
	}
	if in, _ := d.state.Desired(); len(in.Inputs) > 1 {
		for _, input := range in.Inputs {
			if strings.Contains(input.Input, "team") {
				t.Errorf("the watcher has read %+v", input)
			}
		}
	}
	d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("Namespace", "", "team")}, {Ref: ref("Namespace", "", "implicit")}, {Ref: ref("ServiceAccount", "team", "ci")}}})
	if left := append(all(d.cfg.Memory), all(NewMemory(d.store))...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestLeasesAndEventsAreKeptInMemoryAndBounded(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	var many []kinds.Object
	for i := range maxMemory + 5 {
		many = append(many, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("l", i)}})
	}
	d.write(put(many...))
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Note: "text", Regarding: corev1.ObjectReference{Name: "web"}, Series: &eventsv1.EventSeries{Count: 2}}
	d.write(put(event))
	list := all(d.cfg.Memory)
	if len(list) != maxMemory+1 {
		t.Fatalf("%d objects", len(list))
	}
	if first := list[1].GetName(); first != "l5" {
		t.Errorf("the oldest is %s", first)
	}
	got, ok := list[0].(*corev1.Event)
	if !ok || got.Message != "text" || got.InvolvedObject.Name != "web" || got.Series.Count != 2 {
		t.Errorf("the Event is %+v", list[0])
	}
	big := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "big", Annotations: map[string]string{"a": strings.Repeat("x", maxMemorySize)}}}
	if err := d.fails(put(big)); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%v", err)
	}
	d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("Event", "default", "e")}, {Ref: ref("Lease", "default", "l7")}, {Ref: ref("Lease", "default", "never")}}})
	if list := all(d.cfg.Memory); len(list) != maxMemory-1 {
		t.Errorf("%d objects are left", len(list))
	}
	if len(all(NewMemory(d.store))) > 0 {
		t.Error("a restart keeps them")
	}
}

func TestTheNodeIsCordonedAndNeverTainted(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.node.Spec.Taints = []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoSchedule}}
	node := d.node.DeepCopy()
	d.write(put(node))
	node.Spec.Unschedulable = true
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	d.write(put(node))
	if !slices.Equal(d.cordons, []bool{true}) {
		t.Errorf("cordons %v", d.cordons)
	}
	for _, taints := range [][]corev1.Taint{nil, {{Key: "own", Value: "v", Effect: corev1.TaintEffectNoSchedule}}, {{Key: "own", Effect: corev1.TaintEffectNoExecute}}} {
		tainted := d.node.DeepCopy()
		tainted.Spec.Taints = taints
		if err := d.fails(put(tainted)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubectl cordon") {
			t.Errorf("taints %v: %v", taints, err)
		}
	}
	other := d.node.DeepCopy()
	other.Name = "other"
	if err := d.fails(put(other)); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	d.cfg.Cordon = nil
	if err := d.fails(put(node)); !apierrors.IsForbidden(err) {
		t.Errorf("%v", err)
	}
}

func TestMetadataThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	o := configMap("x", "1")
	o.Finalizers = []string{strings.Repeat("f", 300<<10)}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: o.Finalizers}}
	for _, o := range []kinds.Object{o, space} {
		if err := d.fails(put(o)); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%v", err)
		}
	}
}

func TestAnObjectOfMemoryIsFoundByItsName(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", UID: "r"}}
	d.write(put(robot))
	got, ok := d.cfg.Memory.Object(id("ServiceAccount", "robot")).(*corev1.ServiceAccount)
	if !ok || got.UID != "r" || d.cfg.Memory.Object(id("ServiceAccount", "none")) != nil || d.cfg.Memory.Object(id("Namespace", "robot")) != nil {
		t.Errorf("%+v", got)
	}
}

// TestAFullStoreRefusesWrites of the API and of `monopod apply`, but not removals.
func TestAFullStoreRefusesWrites(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.write(put(configMap("mine", "1")))
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", UID: "r"}}
	path := d.store.Path(manifests.ObjectID{Kind: "ConfigMap", Namespace: "secret-team", Name: "big"})
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, applied.MaxBytes); err != nil { // it takes no space
		t.Fatal(err)
	}
	d.store = applied.NewStoreOn(applied.Disk{Write: os.WriteFile, Replace: os.Rename}, d.store.Dir()) // as after a restart
	d.cfg.Applier.Store = d.store
	for name, o := range map[string]kinds.Object{"a manifest": configMap("new", "1"), "growth": configMap("mine", "longer"), "a kept object": robot} {
		err := d.fails(put(o))
		status, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok || status.ErrStatus.Code != http.StatusInsufficientStorage || !strings.Contains(err.Error(), "delete objects that are no longer needed") {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "secret-team") || !strings.Contains(err.Error(), "1 of kind configmap in namespace default") {
			t.Errorf("%s: it names %v", name, err)
		}
		if _, err := d.Write(t.Context(), true, func() (kubeapi.Change, error) { return put(o), nil }); err == nil {
			t.Errorf("%s: a dry run is accepted", name)
		}
	}
	file := localapi.ManifestFile{Name: "a.yaml", Content: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n")}
	for _, dry := range []bool{true, false} {
		if _, err := d.cfg.Applier.Apply(t.Context(), localapi.ApplyRequest{Files: []localapi.ManifestFile{file}, DryRun: dry}); err == nil || !strings.Contains(err.Error(), "1 of kind configmap in namespace secret-team with 64.0 MiB") {
			t.Errorf("monopod apply: %v", err)
		}
	}
	d.write(remove("ConfigMap", "mine"))
}
