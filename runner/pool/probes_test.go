package pool_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/probe"
	"monopod/runner/runtimetest"
)

// answers are the results of probe commands: "" succeeds, anything else is the output of a failure.
type answers struct {
	mu sync.Mutex
	m  map[string]string
}

func (a *answers) set(command, answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.m[command] = answer
}

func (a *answers) exec(_ context.Context, _ manifests.Key, _ string, r runner.ExecRequest) (runner.ExecResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text := a.m[r.Command[0]]; text != "" {
		return runner.ExecResult{ExitCode: 1, Output: []byte(text)}, nil
	}
	return runner.ExecResult{}, nil
}

func probeRig(t *testing.T) (*rig, *answers) {
	t.Helper()
	r, a := newRig(t), &answers{m: map[string]string{}}
	r.fake.OnExec = a.exec
	return r.start(), a
}

// kinds counts the actions of a kind.
func kinds(r *rig, kind runner.ActionKind) int {
	n := 0
	for _, e := range r.fake.Journal() {
		if e.Action.Kind == kind {
			n++
		}
	}
	return n
}

func wantReady(t *testing.T, r *rig, started, ready bool) {
	t.Helper()
	s := r.status("web").Pod.Status
	c := s.ContainerStatuses[0]
	if c.Ready != ready || *c.Started != started {
		t.Errorf("started %t, ready %t; want %t, %t", *c.Started, c.Ready, started, ready)
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
		if is := s.Conditions[i].Status == corev1.ConditionTrue; is != ready {
			t.Errorf("%s is %t, want %t", kind, is, ready)
		}
	}
}

func TestReadinessChangesOnlyCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := probeRig(t)
		a.set("r", "warming up")
		c := testContainer("a", runtimetest.ScriptServe)
		c.ReadinessProbe = asking("r")
		r.update(testPod("web", c))
		r.pass(5 * time.Second)
		wantReady(t, r, true, false)
		if why := r.status("web").Why; why != "container a: its readiness probe has not succeeded" {
			t.Errorf("why %q", why)
		}
		for range 3 {
			a.set("r", "")
			r.pass(1500 * time.Millisecond)
			wantReady(t, r, true, true)
			since := r.status("web").Pod.Status.Conditions[2].LastTransitionTime
			if age := time.Since(since.Time); age > 2*time.Second {
				t.Errorf("ready since %s ago", age)
			}
			a.set("r", "busy")
			r.pass(2 * time.Second)
			wantReady(t, r, true, true) // below the threshold
			r.pass(2 * time.Second)
			wantReady(t, r, true, false)
		}
		if n := kinds(r, runner.StartContainer); n != 1 || kinds(r, runner.StopContainer) != 0 {
			t.Errorf("started %d times; readiness restarts nothing", n)
		}
		if n := kinds(r, runner.RecordHealth); n != 7 {
			t.Errorf("recorded %d times, want 7: at first and at each change", n)
		}
		p := r.status("web").Probes
		if len(p) != 1 || p[0].Container != "a" || p[0].Kind != string(probe.Readiness) || p[0].Output != "busy" || p[0].Failures == 0 || p[0].Next.IsZero() {
			t.Errorf("probes %+v", p)
		}
	})
}

func TestALivenessProbeThatFailsRestartsItsContainer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy corev1.RestartPolicy
		script string
		starts string
	}{
		{"with Always", corev1.RestartPolicyAlways, runtimetest.ScriptServe, "0 2 14"},
		{"with OnFailure, whatever the exit code", corev1.RestartPolicyOnFailure, runtimetest.ScriptServe, "0 2 14"},
		{"with Never it stays down", corev1.RestartPolicyNever, runtimetest.ScriptServe, "0"},
		{"after the grace period of the probe", corev1.RestartPolicyAlways, runtimetest.ScriptStubborn, "0 6 22"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := probeRig(t)
				a.set("l", "deadlock")
				c := testContainer("a", tt.script)
				c.LivenessProbe = asking("l")
				c.LivenessProbe.TerminationGracePeriodSeconds = new(int64(4))
				began := time.Now()
				r.update(edited(testPod("web", c, testContainer("b", runtimetest.ScriptServe)), func(p *corev1.Pod) {
					p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = tt.policy, new(int64(1000))
				}))
				r.pass(30 * time.Second)
				var of []runtimetest.Entry
				for _, e := range r.fake.Journal() {
					if e.Action.Container == "a" {
						of = append(of, e)
					} else if e.Action.Kind == runner.StopContainer {
						t.Errorf("%s", e)
					}
				}
				if got := times(of, runner.StartContainer, began); got != tt.starts {
					t.Errorf("starts at %s, want %s", got, tt.starts)
				}
				i := slices.IndexFunc(of, func(e runtimetest.Entry) bool { return e.Action.Kind == runner.StopContainer })
				if i < 0 || of[i].Action.Cause != runner.StopLivenessProbe || of[i].Action.Reason != "Unhealthy: Liveness probe failed: deadlock" {
					t.Errorf("stopped by %+v", of)
				}
				if s := r.status("web"); s.StoppedFor["a"] != runner.StopLivenessProbe || s.StoppedFor["b"] != "" {
					t.Errorf("stopped for %v", s.StoppedFor)
				}
			})
		})
	}
}

func TestStartupProbeDelaysLivenessProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := probeRig(t)
		a.set("s", "loading")
		a.set("l", "loading")
		c := testContainer("a", runtimetest.ScriptServe)
		c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = asking("s"), asking("l"), asking("r")
		c.StartupProbe.FailureThreshold = 60
		r.update(testPod("web", c))
		r.pass(50 * time.Second)
		wantReady(t, r, false, false)
		if why := r.status("web").Why; why != "container a: its startup probe has not succeeded yet" {
			t.Errorf("why %q", why)
		}
		a.set("s", "")
		a.set("l", "")
		r.pass(2 * time.Second)
		wantReady(t, r, true, true)
		a.set("s", "not asked any more")
		r.pass(2 * time.Minute)
		if n := kinds(r, runner.StartContainer); n != 1 {
			t.Errorf("started %d times", n)
		}
	})
}

func TestAStartupProbeThatFailsRestartsItsContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := probeRig(t)
		a.set("s", "broken")
		c := testContainer("a", runtimetest.ScriptServe)
		c.StartupProbe = asking("s")
		began := time.Now()
		r.update(testPod("web", c))
		r.pass(10 * time.Second)
		if got := times(r.fake.Journal(), runner.StartContainer, began); got != "0 2" {
			t.Errorf("starts at %s", got)
		}
		s := r.status("web").Pod.Status.ContainerStatuses[0]
		if s.State.Waiting == nil || s.State.Waiting.Reason != runner.ReasonCrashLoopBackOff {
			t.Errorf("%+v", s.State)
		}
	})
}

func TestSidecarCountsAsStartedAfterStartupProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := probeRig(t)
		a.set("s", "loading")
		side := testSidecar("side", runtimetest.ScriptServe)
		side.StartupProbe = asking("s")
		side.StartupProbe.FailureThreshold = 60
		r.update(initPod("web", side))
		r.pass(20 * time.Second)
		if n := kinds(r, runner.StartContainer); n != 1 {
			t.Errorf("%d containers were started, want only the sidecar", n)
		}
		a.set("s", "")
		r.pass(2 * time.Second)
		if n := kinds(r, runner.StartContainer); n < 2 {
			t.Errorf("%d containers were started, want the others too", n)
		}
	})
}

func TestReadyContainerStaysReadyAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := probeRig(t)
		c := testContainer("a", runtimetest.ScriptServe)
		c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = asking("s"), asking("l"), asking("r")
		for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			p.PeriodSeconds = 10
		}
		pod := testPod("web", c)
		r.update(pod)
		r.pass(30 * time.Second)
		wantReady(t, r, true, true)
		a.set("s", "not asked any more")
		since := r.status("web").Pod.Status.Conditions[2].LastTransitionTime
		r.restart()
		r.pass(time.Millisecond)
		wantReady(t, r, true, true) // found, and no manifest read yet
		r.update(pod)
		r.pass(time.Second)
		wantReady(t, r, true, true)
		if now := r.status("web").Pod.Status.Conditions[2].LastTransitionTime; !now.Equal(&since) {
			t.Errorf("ready since %s, was %s", now, since)
		}
		a.set("r", "gone")
		r.pass(40 * time.Second)
		wantReady(t, r, true, false)
		r.restart()
		r.update(pod)
		r.pass(time.Second)
		wantReady(t, r, true, false)
		if n := kinds(r, runner.StartContainer); n != 1 {
			t.Errorf("started %d times", n)
		}
	})
}

func TestAnEditOfAProbeRestartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := probeRig(t)
		a.set("new", "no")
		c := testContainer("a", runtimetest.ScriptServe)
		c.ReadinessProbe = asking("old")
		r.update(testPod("web", c))
		r.pass(5 * time.Second)
		wantReady(t, r, true, true)
		c.ReadinessProbe = asking("new")
		r.update(testPod("web", c))
		r.pass(5 * time.Second)
		wantReady(t, r, true, false)
		c.ReadinessProbe = nil
		r.update(testPod("web", c))
		r.pass(5 * time.Second)
		wantReady(t, r, true, true)
		if n := kinds(r, runner.StartContainer); n != 1 || len(r.status("web").Probes) != 0 {
			t.Errorf("started %d times, probes %+v", n, r.status("web").Probes)
		}
	})
}

func TestReadinessGatesDelayReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(edited(testPod("web", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		}))
		r.pass(time.Second)
		for _, c := range r.status("web").Pod.Status.Conditions {
			switch c.Type {
			case corev1.ContainersReady:
				if c.Status != corev1.ConditionTrue {
					t.Errorf("%+v", c)
				}
			case corev1.PodReady:
				if c.Status != corev1.ConditionFalse || c.Reason != podstatus.ReasonReadinessGatesNotReady || !strings.Contains(c.Message, "example.com/gate") {
					t.Errorf("%+v", c)
				}
			}
		}
	})
}

func TestFailedLivenessProbeRunsPreStopHookOnceAndSignalsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newRig(t), &answers{m: map[string]string{"l": "deadlock"}}
		r.fake.OnExec = func(ctx context.Context, key manifests.Key, c string, q runner.ExecRequest) (runner.ExecResult, error) {
			if q.Command[0] == "slow" {
				return scripted(ctx, key, c, q)
			}
			return a.exec(ctx, key, c, q)
		}
		r.start()
		c := hooked(testContainer("a", runtimetest.ScriptServe), "", "slow")
		c.LivenessProbe = asking("l")
		began := time.Now()
		r.update(edited(testPod("web", c), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		r.pass(time.Minute)
		if got := times(r.fake.Journal(), runner.StopContainer, began); got != "7" {
			t.Errorf("signals at %s", got)
		}
		hooks := slices.DeleteFunc(r.fake.Executed(), func(s string) bool { return s != "a: slow" })
		if len(hooks) != 1 {
			t.Errorf("hooks %v", hooks)
		}
	})
}
