package pool_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

// gate sets a Gate that stops the named pods and prevents the creation of those that do not exist.
func (r *rig) gate(h *runner.Halt, names ...string) {
	r.pool.Gate(func(p *manifests.Pod) runner.Rule {
		if slices.Contains(names, p.Object.Name) {
			return runner.Rule{Halt: h, Wait: &runner.Held{Reason: h.Reason, Message: h.Message}}
		}
		return runner.Rule{}
	})
	r.settle()
}

func drained() *runner.Halt { return &runner.Halt{Reason: runner.ReasonDrained, Message: "by a test"} }

func TestHaltedPodStopsAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		web, other := testPod("web", testContainer("a", runtimetest.ScriptServe)), testPod("other", testContainer("a", runtimetest.ScriptServe))
		web = edited(web, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		r.update(web, other)
		before := r.status("web").Pod
		r.journal()
		r.gate(drained(), "web")
		r.expect("halt", "StopContainer a (halted: Drained)\nFinishContainer a (exited with 0)")
		s := r.status("web")
		if !s.Stopped() || !s.Halted() || s.Pod.Status.Phase != corev1.PodPending || s.Pod.Status.Reason != "Drained" || s.Why != "Drained: by a test" || s.Trouble.Kind != model.TroubleHalted {
			t.Errorf("stopped %v, %s %s, %+v", s.Stopped(), s.Pod.Status.Phase, s.Pod.Status.Reason, s.Trouble)
		}
		if term := s.Pod.Status.ContainerStatuses[0].State.Terminated; term == nil || s.Pod.UID != before.UID || s.Pod.Status.PodIP != before.Status.PodIP {
			t.Errorf("status %+v", s.Pod.Status)
		}
		if s := r.status("other"); s.Halted() || s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("the other: %s", s.Pod.Status.Phase)
		}
		r.pass(time.Hour)
		r.expect("later", "")
		r.restart() // nothing starts before the gate is known: it is set before the first update
		r.gate(drained(), "web")
		r.update(web, other)
		r.expect("after a restart of the agent", "")
		r.pool.Gate(nil)
		r.settle()
		if s := r.status("web"); s.Halted() || s.Pod.Status.Phase != corev1.PodRunning || s.Pod.UID != before.UID || s.Why != "" {
			t.Errorf("in the end: %s, %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

func TestShutdownLimitsGraceAndFailsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptStubborn)))
		began := time.Now()
		r.gate(&runner.Halt{Reason: runner.ReasonTerminated, Message: runner.MessageTerminated, Bounded: true, Grace: 3 * time.Second, Failed: true}, "web")
		if s := r.status("web"); s.Stopped() || s.Pod.Status.Phase != corev1.PodRunning || s.Why != "being stopped: Terminated: Pod was terminated in response to imminent node shutdown." {
			t.Errorf("%s: %s", s.Pod.Status.Phase, s.Why)
		}
		for s := r.status("web"); !s.Stopped(); s = r.status("web") {
			if r.pass(100 * time.Millisecond); time.Since(began) > 10*time.Second {
				t.Fatal("it does not stop")
			}
		}
		if d := time.Since(began); d < 3*time.Second || d > 3500*time.Millisecond {
			t.Errorf("stopped after %s", d)
		}
		p := r.status("web").Pod
		c := conditionsOf(p)[corev1.DisruptionTarget]
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" || c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" {
			t.Errorf("%s %s, %+v", p.Status.Phase, p.Status.Reason, c)
		}
	})
}

func TestNewPodsWaitForGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.gate(drained(), "web")
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.expect("gate", "")
		if s := r.status("web"); s.Pod.Status.Reason != "Drained" || s.Pod.Status.Phase != corev1.PodPending || !s.Stopped() {
			t.Errorf("%s %s, stopped %v", s.Pod.Status.Phase, s.Pod.Status.Reason, s.Stopped())
		}
		r.pool.Gate(nil)
		r.settle()
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s: %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

// An eviction order applies only to the moment of the order: after a drain it is void.
func TestResumedPodIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, early := range map[string]bool{"ordered before": true, "ordered meanwhile": false} {
			r := newRig(t).start()
			web := edited(testPod("web", testContainer("a", runtimetest.ScriptStubborn)), func(p *corev1.Pod) {
				seconds := int64(5)
				p.Spec.TerminationGracePeriodSeconds = &seconds
			})
			r.update(web)
			before := r.status("web").Pod.UID
			order := plan.Eviction{UID: string(before), Reason: runner.ReasonPreempting, Message: "m", Grace: -1}
			if !early {
				r.gate(drained(), "web")
				r.pass(time.Minute)
			}
			r.pool.Evict(key("web"), order)
			r.gate(drained(), "web")
			r.pass(time.Minute)
			r.pool.Gate(nil)
			r.pass(time.Second)
			if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Pod.UID != before && !early {
				t.Errorf("%s: %s %s", name, s.Pod.Status.Phase, s.Pod.Status.Reason)
			}
			r.pass(time.Hour)
			if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Pod.UID != before && !early {
				t.Errorf("%s: later: %s %s", name, s.Pod.Status.Phase, s.Pod.Status.Reason)
			}
			r.update()
			r.pass(time.Minute)
			r.stop()
		}
	})
}

// A cordon keeps new pods from starting; existing ones keep running, including edits and restarts.
func TestWaitRuleDoesNotAffectExistingPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		web := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(web)
		r.pool.Gate(func(*manifests.Pod) runner.Rule {
			return runner.Rule{Wait: &runner.Held{Reason: runner.ReasonCordoned, Message: "m"}}
		})
		web = edited(web, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" })
		r.update(web, testPod("new", testContainer("a", runtimetest.ScriptServe)))
		r.pass(5 * time.Second)
		if s := r.status("web"); s.Pod.Status.ContainerStatuses[0].Image != "busybox:2" || s.Why != "" {
			t.Errorf("the edit: %s, %s", s.Pod.Status.ContainerStatuses[0].Image, s.Why)
		}
		if s := r.status("new"); s.Pod.Status.Reason != "NodeUnschedulable" {
			t.Errorf("the new one: %s, %s", s.Pod.Status.Reason, s.Why)
		}
		r.restart()
		r.pool.Gate(func(*manifests.Pod) runner.Rule {
			return runner.Rule{Wait: &runner.Held{Reason: runner.ReasonCordoned, Message: "m"}}
		})
		web = edited(web, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:3" })
		r.update(web)
		r.pass(5 * time.Second)
		if s := r.status("web"); s.Pod.Status.ContainerStatuses[0].Image != "busybox:3" {
			t.Errorf("the edit after a restart: %s, %s", s.Pod.Status.ContainerStatuses[0].Image, s.Why)
		}
	})
}

func TestHaltKeepsCompletedPodsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		once := edited(testPod("once", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		r.update(once)
		if err := r.fake.Exit(key("once"), "a", 0); err != nil {
			t.Fatal(err)
		}
		r.settle()
		r.gate(drained(), "once")
		if s := r.status("once"); s.Pod.Status.Phase != corev1.PodSucceeded || s.Pod.Status.Reason != "" || !s.Stopped() {
			t.Errorf("%s %s", s.Pod.Status.Phase, s.Pod.Status.Reason)
		}
		r.pool.Gate(nil)
		r.pass(time.Minute)
		if s := r.status("once"); s.Pod.Status.Phase != corev1.PodSucceeded {
			t.Errorf("it ran again: %s", s.Pod.Status.Phase)
		}
	})
}

func TestHaltSurvivesAgentDeathAfterAnyAction(t *testing.T) {
	pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptSlowStop))
	pod.Object.Spec.InitContainers = []corev1.Container{testSidecar("side", runtimetest.ScriptServe)}
	for kill := 1; ; kill++ {
		died := false
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.fake.KillAfter(kill)
			r.start()
			for _, halted := range []bool{false, true, false} {
				set := func() {
					if r.pool.Gate(nil); halted {
						r.gate(drained(), "web")
					}
					r.update(pod)
				}
				set()
				r.pass(5 * time.Second)
				select {
				case <-r.fake.Died():
					died = true
					r.restart()
					set()
				default:
				}
				r.pass(time.Minute)
				if s := r.status("web"); halted != s.Stopped() || !halted && s.Pod.Status.Phase != corev1.PodRunning {
					t.Errorf("killed after %d: halted %v, %s: %s", kill, halted, s.Pod.Status.Phase, s.Why)
				}
			}
		})
		if !died {
			if kill < 12 {
				t.Errorf("there were only %d actions", kill-1)
			}
			return
		}
	}
}
