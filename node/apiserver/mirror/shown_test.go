package mirror_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/mirror"
)

// An API server refuses a mirror pod that refers to other objects.
func TestAMirrorRefersToNoObjects(t *testing.T) {
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	for want, change := range map[string]func(*corev1.PodSpec){
		"":                     func(*corev1.PodSpec) {},
		"serviceaccount robot": func(s *corev1.PodSpec) { s.ServiceAccountName, s.DeprecatedServiceAccount = "robot", "robot" },
		"secret a, secret b": func(s *corev1.PodSpec) {
			s.ImagePullSecrets = []corev1.LocalObjectReference{ref("b"), ref("a"), ref("b")}
		},
		"resourceclaim gpu":  func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
		"priorityclass mine": func(s *corev1.PodSpec) { s.PriorityClassName, s.Priority = "mine", new(int32(5)) },
		"runtimeclass gvisor": func(s *corev1.PodSpec) {
			s.RuntimeClassName, s.Overhead = new("gvisor"), corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		},
		"configmap env, secret env": func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "i", EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("env")}}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("env")}},
			}}}
		},
		"configmap key, secret key": func(s *corev1.PodSpec) {
			s.Containers[0].Env = []corev1.EnvVar{
				{Name: "plain", Value: "x"},
				{Name: "field", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				{Name: "a", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("key")}}},
				{Name: "b", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("key")}}},
			}
		},
	} {
		web := with(running("web"), func(p *corev1.Pod) { change(&p.Spec) })
		m, err := mirror.For(web, "n1")
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Annotations[mirror.AnnotationOmitted]; got != want {
			t.Errorf("omitted: %s, want %s", got, want)
		}
		s := m.Spec
		if s.ServiceAccountName != "" || s.DeprecatedServiceAccount != "" || len(s.ImagePullSecrets)+len(s.ResourceClaims)+len(s.Overhead) > 0 || s.RuntimeClassName != nil || s.PriorityClassName != "" || s.Priority != nil {
			t.Errorf("%s: %+v", want, s)
		}
		for _, e := range s.Containers[0].Env {
			if e.Name != "plain" && e.Name != "field" {
				t.Errorf("%s: variable %+v", want, e)
			}
		}
		if len(s.InitContainers) > 0 && len(s.InitContainers[0].EnvFrom) > 0 {
			t.Errorf("%s: %+v", want, s.InitContainers)
		}
	}
	downward := corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}
	secret := corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: ref("tls")}}
	host := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
	for want, tt := range map[string]struct{ given, shown corev1.VolumeSource }{
		"configmap settings":         {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings")}}, empty},
		"secret db":                  {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "db"}}, empty},
		"persistentvolumeclaim data": {corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}, empty},
		"volume v":                   {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "x"}}, empty},
		"":                           {host, host},
		"secret tls":                 {corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{secret}}}, empty},
		"secret tls, serviceaccount token": {
			corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{secret, downward, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}},
			corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{downward}}},
		},
	} {
		web := with(running("web"), func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: tt.given}} })
		before := web.DeepCopy()
		m, err := mirror.For(web, "n1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]corev1.Volume{{Name: "v", VolumeSource: tt.shown}}, m.Spec.Volumes); diff != "" || m.Annotations[mirror.AnnotationOmitted] != want {
			t.Errorf("%s: %s %s", want, m.Annotations[mirror.AnnotationOmitted], diff)
		}
		if diff := cmp.Diff(before, web); diff != "" {
			t.Errorf("the pod itself was changed: %s", diff)
		}
	}
}

func TestASystemPriorityIsShown(t *testing.T) {
	m, err := mirror.For(with(running("web"), func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }), "n1")
	if err != nil || m.Spec.PriorityClassName != "system-node-critical" || m.Annotations[mirror.AnnotationOmitted] != "" {
		t.Errorf("%+v, %v", m, err)
	}
	m = mirror.Owned(m, "n1", "node-uid")
	if o := m.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].Name != "n1" || o[0].UID != "node-uid" || !*o[0].Controller {
		t.Errorf("%+v", o)
	}
	if _, err := mirror.For(with(running("web"), func(p *corev1.Pod) { p.UID = "" }), "n1"); err == nil || err.Error() != "it has no uid yet" {
		t.Error(err)
	}
}

// Clients know the reasons of a kubelet.
func TestReasonsToWaitAreAKubelets(t *testing.T) {
	waits := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}}
	}
	for _, tt := range []struct {
		given, want string
		inits       []corev1.Container
	}{
		{"FailedMount", "ContainerCreating", nil},
		{"CreatePodSandboxError", "ContainerCreating", nil},
		{"FailedMount", "PodInitializing", []corev1.Container{{Name: "i"}}},
		{"ErrImagePull", "ErrImagePull", nil},
	} {
		p := with(running("web"), func(p *corev1.Pod) { p.Spec.InitContainers, p.Status.ContainerStatuses = tt.inits, waits(tt.given) })
		if got := mirror.AsShown(p).Status.ContainerStatuses[0].State.Waiting; got.Reason != tt.want || got.Message != "why" {
			t.Errorf("%s: %+v", tt.given, got)
		}
		if p.Status.ContainerStatuses[0].State.Waiting.Reason != tt.given {
			t.Error("the pod itself was changed")
		}
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	local := mirror.LocalOf(running("web"), "n1")
	theirs := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue}
	old := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	s := mirror.StatusFor(local, mirror.Mirror{Conditions: []corev1.PodCondition{theirs, old}})
	if diff := cmp.Diff(append(slices.Clone(local.Pod.Status.Conditions), theirs), s.Conditions); diff != "" || s.QOSClass != "" {
		t.Errorf("%s, %s", s.QOSClass, diff)
	}
	if len(local.Pod.Status.Conditions) != 1 {
		t.Error("the pod itself was changed")
	}
}

// TestPassingConditionsEnd has conditions that the server still shows, and the pod no longer has: only a kubelet could remove them.
func TestPassingConditionsEnd(t *testing.T) {
	local := mirror.LocalOf(running("web"), "n1")
	for _, kind := range []corev1.PodConditionType{corev1.PodResizeInProgress, corev1.PodResizePending, corev1.AllContainersRestarting} {
		there := mirror.Mirror{Digest: local.Digest, Conditions: append(slices.Clone(local.Pod.Status.Conditions), corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})}
		if mirror.SameStatus(local, there) {
			t.Errorf("%s: the server counts as up to date", kind)
		}
		if diff := cmp.Diff(local.Pod.Status.Conditions, mirror.StatusFor(local, there).Conditions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		there.Conditions = local.Pod.Status.Conditions
		if !mirror.SameStatus(local, there) {
			t.Errorf("without %s: the server does not count as up to date", kind)
		}
	}
}

func TestConditionsOfReadinessGates(t *testing.T) {
	gate, other := corev1.PodCondition{Type: "a/gate", Status: corev1.ConditionTrue}, corev1.PodCondition{Type: "b/other", Status: corev1.ConditionTrue}
	gated := with(running("web"), func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a/none"}, {ConditionType: "a/gate"}}
		p.Status.Conditions = []corev1.PodCondition{other, gate}
	})
	all := mirror.GateConditions(map[manifests.Key]*corev1.Pod{{Name: "web"}: gated, {Name: "plain"}: running("plain")})
	if diff := cmp.Diff(map[types.UID][]corev1.PodCondition{gated.UID: {gate}}, all); diff != "" {
		t.Error(diff)
	}
	changed := maps.Clone(all)
	if !mirror.SameGates(all, changed) {
		t.Error("nothing has changed")
	}
	gate.LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
	changed[gated.UID] = []corev1.PodCondition{gate}
	if mirror.SameGates(all, changed) || mirror.SameGates(all, nil) {
		t.Error("a change is not seen")
	}
}

func TestTheStatusTellsOfAllEphemeralContainers(t *testing.T) {
	run, end := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	there := with(running("web"), func(p *corev1.Pod) {
		for _, name := range []string{"runs", "new", "refused", "ended", "lost"} {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "busybox"}})
		}
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "ended", State: end}, {Name: "lost", State: run}}
	})
	here := with(running("web"), func(p *corev1.Pod) {
		p.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "runs", State: run}}
	})
	said := func(here *corev1.Pod) string {
		var all []string
		for _, s := range mirror.BoundLocal(here, there, map[string]string{"refused": "never"}).Pod.Status.EphemeralContainerStatuses {
			switch state := s.State; {
			case state.Running != nil:
				all = append(all, s.Name+": running")
			case state.Terminated != nil:
				all = append(all, fmt.Sprintf("%s: %d %s", s.Name, state.Terminated.ExitCode, state.Terminated.Reason))
			default:
				all = append(all, s.Name+": "+state.Waiting.Reason+" "+state.Waiting.Message)
			}
		}
		return strings.Join(all, ", ")
	}
	if got, want := said(here), "runs: running, new: ContainerCreating , refused: NotSupported never, ended: 3 , lost: 137 ContainerStatusUnknown"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	here.Status.StartTime = nil // it has not been looked at yet
	if got := said(here); !strings.HasSuffix(got, "lost: running") {
		t.Error(got)
	}
	if s := mirror.BoundLocal(running("web"), running("web"), nil).Pod.Status; s.EphemeralContainerStatuses != nil {
		t.Errorf("%+v", s.EphemeralContainerStatuses)
	}
}
