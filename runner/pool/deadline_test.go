package pool_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

func withDeadline(p *manifests.Pod, seconds int64) *manifests.Pod {
	return edited(p, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(seconds) })
}

func TestAPodFailsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.OnExec = scripted
		r.start()
		pod := withDeadline(edited(initPod("web", testSidecar("side", runtimetest.ScriptServe)), func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{hooked(testContainer("a", runtimetest.ScriptServe), "", "slow"), testContainer("b", runtimetest.ScriptFail)}
		}), 100)
		began := time.Now()
		r.update(pod)
		r.pass(50 * time.Second)
		r.restart() // the deadline includes the restart
		r.update(pod)
		r.pass(time.Hour)
		all := r.fake.Journal()
		if got := times(all, runner.FailPod, began); got != "100" {
			t.Errorf("failed at %s", got)
		}
		if got := times(all, runner.StopContainer, began); got != "105 105" { // after the hook
			t.Errorf("stopped at %s", got)
		}
		check := func(when string) {
			t.Helper()
			p := r.wantPhase(corev1.PodFailed)
			if p.Status.Reason != runner.ReasonDeadlineExceeded || p.Status.Message != "Pod was active on the node longer than the specified deadline" {
				t.Errorf("%s: %s: %s", when, p.Status.Reason, p.Status.Message)
			}
			for _, st := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
				if st.State.Terminated == nil {
					t.Errorf("%s: %s: %+v", when, st.Name, st.State)
				}
			}
			if c := conditionsOf(p)[corev1.PodReady]; c.Status != "False" || c.Reason != "PodFailed" {
				t.Errorf("%s: %+v", when, c)
			}
		}
		check("at once")
		r.fake.ClearJournal()
		r.fake.Reboot()
		r.restart()
		r.update(pod)
		r.pass(time.Hour)
		check("after a reboot")
		pod = edited(pod, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })
		r.update(pod)
		r.pass(time.Hour)
		check("with another label")
		if got := r.began(); got != "" {
			t.Errorf("started %q", got)
		}
		pod = withDeadline(pod, 1000)
		r.update(pod)
		r.pass(5 * time.Second)
		r.wantPhase(corev1.PodRunning)
		if got := r.began(); got != "side a b b" {
			t.Errorf("a new deadline started %q", got)
		}
	})
}

func TestDeadlineIgnoresCompletedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := withDeadline(edited(testPod("web", testContainer("a", "after 10s")), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }), 60)
		r.update(pod)
		r.pass(time.Hour)
		r.wantPhase(corev1.PodSucceeded)
		// The same applies to a deadline that an edit adds to a running pod.
		pod = testPod("late", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		r.pass(time.Minute)
		pod = withDeadline(pod, 120)
		r.update(pod)
		r.pass(30 * time.Second)
		if s := r.status("late"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s %s", s.Pod.Status.Phase, s.Why)
		}
		r.pass(31 * time.Second) // but it counts from the creation of the pod
		if s := r.status("late"); s.Pod.Status.Phase != corev1.PodFailed {
			t.Errorf("%s %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

// TestShortenedDeadlineFailsPodPermanently shortens the deadline so that it has already expired.
func TestShortenedDeadlineFailsPodPermanently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := withDeadline(testPod("web", testContainer("a", runtimetest.ScriptServe)), 1000)
		r.update(pod)
		r.pass(time.Minute)
		r.fake.ClearJournal()
		soon := withDeadline(pod, 30)
		failures := 1
		r.fake.Fail = func(_ manifests.Key, a runner.Action) error {
			if a.Kind != runner.RecordPod || failures == 0 {
				return nil
			}
			failures--
			return errors.New("the disk is full for a moment")
		}
		r.update(soon)
		r.pass(time.Hour)
		r.wantPhase(corev1.PodFailed)
		r.restart()
		r.update(soon)
		r.pass(time.Hour)
		r.wantPhase(corev1.PodFailed)
		if got := r.began(); got != "" {
			t.Errorf("started %q", got)
		}
		// With another container it is a new pod with a deadline of its own.
		other := edited(withDeadline(pod, 10), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" })
		r.update(other)
		r.pass(5 * time.Second)
		r.wantPhase(corev1.PodRunning)
		if got := r.began(); got != "a" {
			t.Errorf("an edit of the container started %q", got)
		}
		r.pass(time.Minute)
		r.wantPhase(corev1.PodFailed)
	})
}
