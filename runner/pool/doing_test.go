package pool_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/runtimetest"
)

func TestHangingActionIsReportedWithStartTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.StartContainer {
				return time.Minute
			}
			return 0
		}
		r.start()
		began := time.Now()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.pass(30 * time.Second)
		got := r.status("web").Doing
		if len(got) != 1 || got[0].Kind != string(runner.StartContainer) || got[0].Container != "a" || got[0].Since.Sub(began) > time.Second {
			t.Errorf("doing %+v", got)
		}
		r.pass(time.Minute)
		if got := r.status("web").Doing; len(got) > 0 {
			t.Errorf("it is over, and doing %+v", got)
		}
	})
}

func TestCreationEndsWithThePod(t *testing.T) {
	for name, parallel := range map[string]int{"one after another": 1, "concurrently": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.cfg.Options.Parallel = parallel
				slow := time.Minute
				r.fake.Delay = func(a runner.Action) time.Duration {
					if a.Kind == runner.CreateContainer {
						return slow
					}
					return 0
				}
				r.start()
				web := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
				r.update(web)
				r.pass(time.Second)
				if n := len(r.status("web").Doing); n == 0 {
					t.Fatal("nothing is in progress")
				}
				r.update()
				r.pass(time.Second)
				if state := r.fake.State(key("web")); state.Sandbox != nil || len(state.Containers) > 0 {
					t.Errorf("a second after the pod is gone: %+v", state)
				}
				slow = time.Millisecond
				r.update(web) // the same pod again is not affected
				r.pass(time.Second)
				if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
					t.Errorf("%s, %s", s.Pod.Status.Phase, s.Why)
				}
			})
		})
	}
}

func TestStatusShowsWhatEndedHealthyContainer(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(r *rig)
		want runner.EndedBy
	}{
		"a drain":         {func(r *rig) { r.gate(drained(), "web"); r.settle(); r.pass(time.Minute); r.pool.Gate(nil); r.settle() }, runner.EndedByAgent},
		"a reboot":        {func(r *rig) { r.fake.Reboot(); r.restart() }, runner.EndedByReboot},
		"its own program": {func(r *rig) { _ = r.fake.Exit(key("web"), "a", 143) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).start()
				pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
				r.update(pod)
				tt.end(r)
				r.update(pod)
				r.pass(time.Minute)
				s := r.status("web")
				last := s.Pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
				if last == nil || last.ExitCode == 0 && tt.want == "" || s.EndedBy["a"] != tt.want || s.Why != "" {
					t.Errorf("ended by %q, last %+v, %s", s.EndedBy["a"], last, s.Why)
				}
			})
		})
	}
}
