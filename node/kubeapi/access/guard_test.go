package access_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
)

func objectMeta() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "team", Name: "x"} }

// withPod returns an object of each kind that makes pods, of one pod spec.
func withPod(spec corev1.PodSpec) map[string]kinds.Object {
	template := corev1.PodTemplateSpec{Spec: spec}
	return map[string]kinds.Object{
		"pods":         &corev1.Pod{ObjectMeta: objectMeta(), Spec: spec},
		"deployments":  &appsv1.Deployment{ObjectMeta: objectMeta(), Spec: appsv1.DeploymentSpec{Template: template}},
		"statefulsets": &appsv1.StatefulSet{ObjectMeta: objectMeta(), Spec: appsv1.StatefulSetSpec{Template: template}},
		"daemonsets":   &appsv1.DaemonSet{ObjectMeta: objectMeta(), Spec: appsv1.DaemonSetSpec{Template: template}},
		"replicasets":  &appsv1.ReplicaSet{ObjectMeta: objectMeta(), Spec: appsv1.ReplicaSetSpec{Template: template}},
		"jobs":         &batchv1.Job{ObjectMeta: objectMeta(), Spec: batchv1.JobSpec{Template: template}},
		"cronjobs":     &batchv1.CronJob{ObjectMeta: objectMeta(), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}},
	}
}

func policyWith(t *testing.T, rules map[string][]string) access.Policy {
	t.Helper()
	parsed, err := access.ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	return access.NewPolicy(parsed)
}

func TestPrivilegedPodsNeedAdmin(t *testing.T) {
	p := policyWith(t, map[string][]string{"user:builder": {"edit@team"}, "user:root-in-team": {"admin@team"}, "user:lifted": {"edit", "create:pods/privileged@team"}})
	yes := true
	specs := map[string]corev1.PodSpec{
		"host network":  {HostNetwork: true, Containers: []corev1.Container{{Name: "c"}}},
		"hostPath":      {Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}, Containers: []corev1.Container{{Name: "c"}}},
		"privileged":    {Containers: []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}},
		"an init one":   {InitContainers: []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}},
		"a debugger is": {EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}}},
	}
	users := map[string]struct {
		u  access.User
		ok bool
	}{
		"edit": {member(access.GroupEdit), false}, "admin": {member(access.GroupAdmin), true}, "root": {access.Root(), true},
		"edit in the namespace": {access.User{Name: "builder"}, false}, "admin in the namespace": {access.User{Name: "root-in-team"}, true},
		"lifted": {access.User{Name: "lifted"}, true},
	}
	for what, spec := range specs {
		for resource, o := range withPod(spec) {
			for name, tt := range users {
				for _, verb := range []string{"create", "update", "connect"} {
					err := access.Admit(tt.u, p, verb, o)
					if (err == nil) != tt.ok || (err != nil && !apierrors.IsForbidden(err)) {
						t.Errorf("%s with %s: %s as %s: %v", resource, what, verb, name, err)
					}
					if err != nil && (!strings.Contains(err.Error(), resource) || !strings.Contains(err.Error(), `violates PodSecurity "baseline`)) {
						t.Errorf("the error is %v", err)
					}
				}
				if err := access.Admit(tt.u, p, "delete", o); err != nil {
					t.Errorf("delete %s as %s: %v", resource, name, err)
				}
			}
		}
	}
	for resource, o := range withPod(corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}) {
		if err := access.Admit(member(access.GroupEdit), p, "create", o); err != nil {
			t.Errorf("a plain pod in %s: %v", resource, err)
		}
	}
}

func TestVolumesOfTheMachineNeedAdmin(t *testing.T) {
	p := access.NewPolicy(nil)
	for name, tt := range map[string]struct {
		source corev1.PersistentVolumeSource
		ok     bool
	}{
		"hostPath": {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, false},
		"local":    {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/"}}, false},
		"nfs":      {corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}, true},
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: tt.source}}
		if err := access.Admit(member(access.GroupEdit), p, "create", v); (err == nil) != tt.ok {
			t.Errorf("%s as edit: %v", name, err)
		}
		if err := access.Admit(member(access.GroupAdmin), p, "create", v); err != nil {
			t.Errorf("%s as admin: %v", name, err)
		}
	}
	for name, tt := range map[string]struct {
		v  corev1.PersistentVolumeSpec
		ok bool
	}{
		"a device of the machine":     {corev1.PersistentVolumeSpec{MountOptions: []string{"logdev=/dev/sda2"}, PersistentVolumeSource: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{}}}, false},
		"a directory of the machine":  {corev1.PersistentVolumeSpec{MountOptions: []string{"hard,bind"}, PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}}, false},
		"an option of the protocol":   {corev1.PersistentVolumeSpec{MountOptions: []string{"nfsvers=4.2"}, PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}}, true},
		"a disk without such options": {corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{}}}, true},
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: tt.v}
		if err := access.Admit(member(access.GroupEdit), p, "create", v); (err == nil) != tt.ok {
			t.Errorf("%s as edit: %v", name, err)
		}
	}
	if err := access.Admit(member(access.GroupEdit), p, "create", &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
}

// TestConnectionsOfTheMachineNeedAdmin: a Service of a user who may not use a hostPort takes no port of the machine, nor any other address.
func TestConnectionsOfTheMachineNeedAdmin(t *testing.T) {
	p := policyWith(t, map[string][]string{"user:lifted": {"create:pods/privileged"}})
	for name, tt := range map[string]struct {
		spec corev1.ServiceSpec
		want string
	}{
		"any address":          {corev1.ServiceSpec{ExternalIPs: []string{"198.51.100.7"}}, "externalIPs"},
		"a port":               {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, "use NodePort"},
		"that of another":      {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("example.com/other")}, ""},
		"a port of its own":    {corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}, ""},
		"an address in pods":   {corev1.ServiceSpec{}, ""},
		"a name in the domain": {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}, ""},
	} {
		s := &corev1.Service{ObjectMeta: objectMeta(), Spec: tt.spec}
		for _, verb := range []string{"create", "update"} {
			err := access.Admit(member(access.GroupEdit), p, verb, s)
			if (err == nil) != (tt.want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s, %s: %v", name, verb, err)
			}
		}
		for _, u := range []access.User{member(access.GroupAdmin), access.Root(), {Name: "lifted"}} {
			if err := access.Admit(u, p, "create", s); err != nil {
				t.Errorf("%s as %s: %v", name, u.Name, err)
			}
		}
		if err := access.Admit(member(access.GroupEdit), p, "delete", s); err != nil {
			t.Errorf("%s is not deleted: %v", name, err)
		}
	}
}

func TestSecretsOfOtherSourcesAreHidden(t *testing.T) {
	p := policyWith(t, map[string][]string{"user:reader": {"secrets,secrets/sources@team"}, "user:plain": {"secrets"}})
	secret := &corev1.Secret{ObjectMeta: objectMeta()}
	for _, tt := range []struct {
		name string
		u    access.User
		want bool
	}{
		{"edit", member(access.GroupEdit), true},
		{"admin", member(access.GroupAdmin), false},
		{"root", access.Root(), false},
		{"a rule that names them", access.User{Name: "reader"}, false},
		{"a rule of secrets", access.User{Name: "plain"}, true},
	} {
		if got := access.Hides(tt.u, p, secret, false); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if access.Hides(tt.u, p, secret, true) || access.Hides(tt.u, p, &corev1.ConfigMap{}, false) {
			t.Errorf("%s: hides what is not a Secret of another source", tt.name)
		}
	}
	if err := access.HiddenError(member(), secret); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `secrets "x" is forbidden`) {
		t.Error(err)
	}
}

// TestPrecedenceOverOthersNeedsAdmin: preemption would end the pods of an administrator.
func TestPrecedenceOverOthersNeedsAdmin(t *testing.T) {
	p := policyWith(t, map[string][]string{"user:builder": {"edit@team"}})
	objects := map[string]kinds.Object{
		"a default PriorityClass": &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Value: 1, GlobalDefault: true},
		"a default StorageClass": &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		},
	}
	containers := []corev1.Container{{Name: "c"}}
	for name, spec := range map[string]corev1.PodSpec{
		"a class":    {Containers: containers, PriorityClassName: "system-node-critical"},
		"a priority": {Containers: containers, Priority: new(int32(2_000_000_000))},
	} {
		for resource, o := range withPod(spec) {
			objects[resource+" with "+name] = o
		}
	}
	protected := &corev1.Pod{ObjectMeta: objectMeta(), Spec: corev1.PodSpec{Containers: containers}}
	protected.Annotations = map[string]string{manifests.AnnotationProtected: "true"}
	objects["a protected pod"] = protected
	for name, o := range objects {
		for _, verb := range []string{"create", "update"} {
			for _, u := range []access.User{member(access.GroupEdit), {Name: "builder"}} {
				if err := access.Admit(u, p, verb, o); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "needs the role admin") {
					t.Errorf("%s: %s as edit: %v", name, verb, err)
				}
			}
			if err := access.Admit(member(access.GroupAdmin), p, verb, o); err != nil {
				t.Errorf("%s: %s as admin: %v", name, verb, err)
			}
		}
		if err := access.AdmitCommands(member(access.GroupEdit), p, "run commands in", o); err != nil {
			t.Errorf("%s: commands as edit: %v", name, err)
		}
	}
	for _, o := range []kinds.Object{
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Value: 1000}, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
		&corev1.Pod{ObjectMeta: objectMeta(), Spec: corev1.PodSpec{Containers: containers, PriorityClassName: "x", Priority: new(int32(1000))}},
	} {
		if err := access.Admit(member(access.GroupEdit), p, "create", o); err != nil {
			t.Errorf("%T as edit: %v", o, err)
		}
	}
}
