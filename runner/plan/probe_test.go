package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/probe"
	"monopod/runner/runtimetest"
)

func TestStartedAndReadyContainers(t *testing.T) {
	none, both := testContainer("a", ""), testContainer("a", "")
	both.StartupProbe, both.ReadinessProbe = runtimetest.ExecProbe("s"), runtimetest.ExecProbe("r")
	health := func(started, ready bool) *probe.Health { return &probe.Health{Started: started, Ready: ready} }
	for _, c := range []struct {
		name           string
		spec           *corev1.Container
		change         func(*runner.Container)
		result         *probe.Health
		started, ready bool
	}{
		{"it runs, without probes", &none, nil, nil, true, true},
		{"the manifest does not have it", nil, nil, nil, true, true},
		{"it is created", &none, func(c *runner.Container) { c.State = runner.ContainerCreated }, nil, false, false},
		{"its hook runs", &none, func(c *runner.Container) { c.PostStart = runner.PostStartPending }, nil, false, false},
		{"its hook has ended", &none, func(c *runner.Container) { c.PostStart = runner.PostStartDone }, nil, true, true},
		{"no result yet", &both, nil, nil, false, false},
		{"started", &both, nil, health(true, false), true, false},
		{"ready", &both, nil, health(true, true), true, true},
		{"not started", &both, nil, health(false, true), false, false},
		{"as the former agent recorded", &both, func(c *runner.Container) { c.Health = runner.Health{Started: true, Ready: true} }, nil, true, true},
		{"a result beats the record", &both, func(c *runner.Container) { c.Health = runner.Health{Started: true, Ready: true} }, health(true, false), true, false},
	} {
		i, o := running("1", "a", 1), plan.Observed{}
		if c.change != nil {
			c.change(&i)
		}
		if c.result != nil {
			o.Probes = map[string]probe.Health{"1": *c.result}
		}
		if started, ready := o.Started(c.spec, &i), o.Ready(c.spec, &i); started != c.started || ready != c.ready {
			t.Errorf("%s: started %t, ready %t", c.name, started, ready)
		}
	}
}

func TestProbeResultsBecomeActions(t *testing.T) {
	probed := testContainer("a", runtimetest.ScriptServe)
	probed.StartupProbe, probed.LivenessProbe, probed.ReadinessProbe = runtimetest.ExecProbe("s"), runtimetest.ExecProbe("l"), runtimetest.ExecProbe("r")
	probed.LivenessProbe.TerminationGracePeriodSeconds = new(int64(4))
	pod := testPod("x", probed)
	live := testPod("x", probed)
	live.Object.Spec.Containers[0].StartupProbe, live.Object.Spec.Containers[0].ReadinessProbe = nil, nil
	failed := func(kind probe.Kind) probe.Health {
		return probe.Health{Failed: &probe.Verdict{Kind: kind, Output: "no answer"}}
	}
	ready := probe.Health{Started: true, Ready: true, Since: zero}
	for _, c := range []struct {
		name   string
		health probe.Health
		change func(*plan.Observed)
		want   string
		next   time.Duration
	}{
		{"the first result", ready, nil, "[RecordHealth a (ready)]", 0},
		{"the first failure", probe.Health{Since: zero}, nil, "[RecordHealth a (not started)]", 0},
		{"no result yet", probe.Health{}, nil, "[]", 0},
		{"the same as on record", ready, func(o *plan.Observed) {
			o.Containers[0].Health = runner.Health{Started: true, Ready: true, Since: zero.Add(-time.Hour)}
		}, "[]", 0},
		{"another than on record", ready, func(o *plan.Observed) {
			o.Containers[0].Health = runner.Health{Started: true, Since: zero.Add(-time.Hour)}
		}, "[RecordHealth a (ready)]", 0},
		{"the record cannot be written now", ready, func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"id:id-a": {Count: 1, At: zero}}
		}, "[]", time.Second},
		{"liveness", failed(probe.Liveness), nil, "[StopContainer a (Unhealthy: Liveness probe failed: no answer)]", 4 * time.Second},
		{"startup", failed(probe.Startup), nil, "[StopContainer a (Unhealthy: Startup probe failed: no answer)]", 30 * time.Second},
		{"it is stopping for it", failed(probe.Liveness), func(o *plan.Observed) {
			o.Containers[0].StopSentAt, o.Containers[0].StopCause = zero.Add(-3*time.Second), runner.StopLivenessProbe
		}, "[]", time.Second},
		{"it does not stop", failed(probe.Liveness), func(o *plan.Observed) {
			o.Containers[0].StopSentAt, o.Containers[0].StopCause = zero.Add(-4*time.Second), runner.StopLivenessProbe
		}, "[KillContainer a (did not stop within 4s)]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(pod)
			o.Probes = map[string]probe.Health{"id-a": c.health}
			if c.change != nil {
				c.change(&o)
			}
			wantPlan(t, pod, o, c.want)
			if _, next := plan.Plan(zero, pod, o); c.next == 0 && !next.IsZero() || c.next != 0 && !next.Equal(zero.Add(c.next)) {
				t.Errorf("next %s, want in %s", next, c.next)
			}
		})
	}
	o := runs(live)
	o.Probes = map[string]probe.Health{"id-a": ready}
	wantPlan(t, live, o, "[]") // a liveness probe alone has nothing to record
}
