package pool_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/admit"
)

// TestPodsNeverShareUID matters because their directories and logs are named after it. A copied dump has the uid of the original.
func TestPodsNeverShareUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		first := testPod("first", testContainer("c", ""))
		r.update(first)
		uid := r.status("first").Pod.UID
		copied := edited(testPod("copied", testContainer("c", "")), func(p *corev1.Pod) { p.UID = uid })
		again := edited(testPod("again", testContainer("c", "")), func(p *corev1.Pod) { p.UID = "own" })
		twice := edited(testPod("twice", testContainer("c", "")), func(p *corev1.Pod) { p.UID = "own" })
		r.update(copied, again, first, twice)
		for name, taken := range map[string]string{"copied": "default/first", "twice": "default/again"} {
			s := r.status(name).Pod.Status
			if s.Phase != corev1.PodPending || s.Reason != admit.ReasonUIDConflict || !strings.Contains(s.Message, "is already used by pod "+taken) {
				t.Errorf("%s: %s %s %s", name, s.Phase, s.Reason, s.Message)
			}
		}
		for _, name := range []string{"first", "again"} {
			if s := r.status(name).Pod; s.Status.Phase != corev1.PodRunning {
				t.Errorf("%s: %s %s", name, s.Status.Phase, s.Status.Message)
			}
		}
		// The new name can use the uid once the old pod is gone.
		r.update(copied, again)
		if s := r.status("copied").Pod; s.Status.Phase != corev1.PodRunning || s.UID != uid {
			t.Errorf("%s %s: %s", s.UID, s.Status.Phase, s.Status.Message)
		}
	})
}
