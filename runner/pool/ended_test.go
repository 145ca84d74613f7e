package pool_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// deleted returns a pod that finalizers keep.
func deleted(p *manifests.Pod, grace int64) *manifests.Pod {
	gone := *p
	gone.Given = &manifests.ServerMetadata{Finalizers: []string{"example.com/last"}, DeletionTimestamp: &metav1.Time{Time: time.Now()}, DeletionGracePeriodSeconds: &grace}
	return &gone
}

func TestADeletedPodEndsWhileFinalizersKeepIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		web := testPod("web", testContainer("a", runtimetest.ScriptStubborn))
		r.update(web)
		began := time.Now()
		r.update(deleted(web, 90)) // more than the manifest says
		if s := r.status("web"); s.Stopped() || s.Pod.DeletionTimestamp == nil || s.Why == "" || s.Trouble.Cause.Kind != cause.Removing {
			t.Errorf("while it ends: %+v", s.Trouble)
		}
		r.pass(50 * time.Second)
		if s := r.status("web"); s.Stopped() {
			t.Error("it is killed before the time that the client gave it is over")
		}
		r.update(deleted(web, 60)) // a second deletion shortens it
		for s := r.status("web"); !s.Stopped(); s = r.status("web") {
			if r.pass(100 * time.Millisecond); time.Since(began) > 2*time.Minute {
				t.Fatal("it does not stop")
			}
		}
		if d := time.Since(began); d < time.Minute || d > 61*time.Second {
			t.Errorf("stopped after %s", d)
		}
		r.pass(time.Hour)
		r.journal()
		r.restart()
		r.update(deleted(web, 60))
		r.expect("after a restart of the agent", "")
		p := r.status("web").Pod
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "" || p.Status.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("in the end: %s %s, %+v", p.Status.Phase, p.Status.Reason, p.Status.ContainerStatuses)
		}
		r.update()
		r.pass(time.Minute)
		if pods := r.pool.Pods(); len(pods) > 0 {
			t.Errorf("without finalizers: %+v", pods)
		}
		r.update(deleted(web, 60))
		r.pass(time.Minute)
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodPending || s.Trouble.Kind != model.TroubleHeld {
			t.Errorf("a pod that was deleted before it ran: %s %+v", s.Pod.Status.Phase, s.Trouble)
		}
	})
}

func TestARejectedPodIsFailedAndNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		web := testPod("web", testContainer("a", runtimetest.ScriptServe))
		rejected := *web
		rejected.Rejected = &manifests.Rejection{Reason: "SysctlForbidden", Message: "no"}
		r.update(&rejected)
		r.pass(time.Hour)
		r.expect("rejected", "")
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodFailed || s.Pod.Status.Reason != "SysctlForbidden" || s.Pod.Status.Message != "no" || s.Trouble.Cause.Kind != cause.PodFailed {
			t.Errorf("%s %s: %+v", s.Pod.Status.Phase, s.Pod.Status.Reason, s.Trouble)
		}
		r.update(web)
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("once it is allowed: %s", s.Pod.Status.Phase)
		}
		r.update(&rejected)
		r.pass(time.Hour)
		if s := r.status("web"); s.Running || s.Pod.Status.Phase != corev1.PodFailed {
			t.Errorf("once it is forbidden: %s", s.Pod.Status.Phase)
		}
		r.pool.Gate(func(*manifests.Pod) runner.Rule {
			return runner.Rule{Halt: &runner.Halt{Reason: runner.ReasonHandedOver, Remove: true}}
		})
		r.pass(time.Minute)
		if s := r.status("web"); !s.Stopped() {
			t.Error("it is not handed over")
		}
	})
}
