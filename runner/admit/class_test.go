package admit_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/runner/admit"
)

// TestOnlyANewPodWaitsForItsPriorityClass: a running pod with the same class is left alone, whatever sources define.
func TestOnlyANewPodWaitsForItsPriorityClass(t *testing.T) {
	pod := func(change func(*corev1.PodSpec)) *manifests.Pod {
		return edited(requesting("web", "", "", ""), func(p *corev1.Pod) { change(&p.Spec) })
	}
	named := func(name string) *manifests.Pod { return pod(func(s *corev1.PodSpec) { s.PriorityClassName = name }) }
	defined := named("high")
	defined.Refs = &manifests.Refs{PriorityClass: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}}
	other := named("hihg")
	other.Refs = defined.Refs
	for name, tt := range map[string]struct {
		pod   *manifests.Pod
		known admit.Holding
		want  string
	}{
		"a new pod":                       {named("hihg"), admit.Holding{Seen: true}, admit.ReasonPriorityClassNotFound},
		"another class":                   {other, admit.Holding{Seen: true}, admit.ReasonPriorityClassNotFound},
		"the class is defined":            {defined, admit.Holding{Seen: true}, ""},
		"a built-in class":                {named(manifests.NodeCritical), admit.Holding{Seen: true}, ""},
		"no class":                        {named(""), admit.Holding{Seen: true}, ""},
		"bound, with its priority":        {pod(func(s *corev1.PodSpec) { s.PriorityClassName, s.Priority = "hihg", new(int32(5)) }), admit.Holding{Seen: true}, ""},
		"it runs":                         {named("hihg"), admit.Holding{Seen: true, Pod: named("hihg")}, ""},
		"it has a sandbox and no process": {named("hihg"), admit.Holding{Seen: true, Pod: named("hihg"), Idle: true}, ""},
		"it is being recreated":           {named("hihg"), admit.Holding{Seen: true, Place: named("hihg")}, ""},
		"an edit misspells the class":     {named("hihg"), admit.Holding{Seen: true, Pod: named("high")}, admit.ReasonPriorityClassNotFound},
		"not observed yet":                {named("hihg"), admit.Holding{}, admit.ReasonStarting},
	} {
		d := admit.Decide(admit.Input{Desired: []*manifests.Pod{tt.pod}, Known: map[manifests.Key]admit.Holding{tt.pod.Key(): tt.known}, Listed: true})
		h := d.Held[tt.pod.Key()]
		if h.Reason != tt.want || h.Final || tt.want == admit.ReasonPriorityClassNotFound && !strings.Contains(h.Message, "no PriorityClass with name hihg was found") {
			t.Errorf("%s: %+v", name, h)
		}
	}
}
