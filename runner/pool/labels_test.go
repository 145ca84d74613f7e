package pool_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/admit"
)

// TestLabelsOfTheNodeChange: pods that run stay when they no longer match, as in Kubernetes; those that wait start once they do.
func TestLabelsOfTheNodeChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		selects := func(name, disk string) (p *corev1.Pod) {
			return edited(testPod(name, testContainer("c", "")), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": disk} }).Object
		}
		web := edited(testPod("web", testContainer("c", "")), func(p *corev1.Pod) { *p = *selects("web", "ssd") })
		r.update(web)
		runs := func(name string, want bool) {
			t.Helper()
			s := r.status(name)
			if got := s.Pod.Status.Phase == corev1.PodRunning; got != want || !want && s.Pod.Status.Reason != admit.ReasonNodeAffinity {
				t.Errorf("%s: %s %s: %s", name, s.Pod.Status.Phase, s.Pod.Status.Reason, s.Pod.Status.Message)
			}
		}
		runs("web", true) // no labels: all nodes match
		before := r.status("web").Pod
		label := func(labels map[string]string) {
			r.pool.SetNodeLabels(labels, false)
			synctest.Wait()
		}
		label(map[string]string{"disk": "hdd"})
		runs("web", true)
		late := edited(testPod("late", testContainer("c", "")), func(p *corev1.Pod) { *p = *selects("late", "ssd") })
		r.update(web, late)
		runs("late", false)
		if text := r.status("late").Pod.Status.Message; !strings.HasSuffix(text, "the node has no label disk=ssd") {
			t.Error(text)
		}
		label(map[string]string{"disk": "ssd"})
		runs("late", true)
		label(map[string]string{"zone": "a"})
		runs("late", true)
		runs("web", true)
		if now := r.status("web").Pod; now.UID != before.UID || now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
			t.Error("it was restarted")
		}
	})
}
