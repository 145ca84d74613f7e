package pool_test

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/admit"
)

// TestPodForOtherPlatformWaitsWithoutNodeLabels: a pod for another platform waits, and no part of it is started.
func TestPodForOtherPlatformWaitsWithoutNodeLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Platform = manifests.Platform{OS: "linux", Arch: "amd64"}
		r.start()
		foreign := edited(testPod("arm", testContainer("c", "")), func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"}
		})
		ours := edited(testPod("amd", testContainer("c", "")), func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": "amd64", "disk": "ssd"}
		})
		r.update(foreign, ours)
		if s := r.status("arm"); s.Pod.Status.Reason != admit.ReasonNodeAffinity || s.Pod.Status.Phase != corev1.PodPending {
			t.Errorf("%s %s: %s", s.Pod.Status.Phase, s.Pod.Status.Reason, s.Pod.Status.Message)
		}
		if s := r.status("amd"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s %s: %s", s.Pod.Status.Phase, s.Pod.Status.Reason, s.Pod.Status.Message)
		}
		for _, e := range r.fake.Journal() {
			if e.Key.Name == "arm" {
				t.Errorf("%v was done for it", e.Action)
			}
		}
	})
}
