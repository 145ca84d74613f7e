package pool_test

import (
	"testing"
	"testing/synctest"
	"time"

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
