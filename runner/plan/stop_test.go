package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

func TestTimeOfTheKill(t *testing.T) {
	sec := func(n int) time.Time { return at(n) }
	for _, c := range []struct {
		name           string
		stopping, sent time.Time
		grace          time.Duration
		want           time.Time
	}{
		{"only the signal", time.Time{}, sec(10), 30 * time.Second, sec(40)},
		{"a hook used some of the grace period", sec(5), sec(10), 30 * time.Second, sec(35)},
		{"it used all of it: two seconds remain", sec(5), sec(34), 30 * time.Second, sec(36)},
		{"but not more than the grace period", sec(5), sec(6), time.Second, sec(7)},
		{"the record is from the future", sec(50), sec(10), 30 * time.Second, sec(40)},
		{"no grace period", time.Time{}, sec(10), 0, sec(10)},
	} {
		if got := plan.KillTime(&runner.Container{StoppingAt: c.stopping}, c.sent, c.grace); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if a, b := sec(1), sec(2); plan.Later(a, b) != b || plan.Later(b, a) != b || plan.Later(a, time.Time{}) != a {
		t.Error("Later does not return the later time")
	}
}

func TestStopOfARemovedPod(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	seconds := func(n int) *time.Duration { return new(time.Duration(n) * time.Second) }
	for _, c := range []struct {
		name   string
		change func(*plan.Observed, *runner.Container)
		want   string
		next   int // seconds from now; 0: none
	}{
		{"first the signal", func(*plan.Observed, *runner.Container) {}, "[StopContainer a (pod removed)]", 30},
		{"then it is waited for", func(_ *plan.Observed, c *runner.Container) { c.StopSentAt = zero.Add(-29 * time.Second) }, "[]", 1},
		{"then killed", func(_ *plan.Observed, c *runner.Container) { c.StopSentAt = zero.Add(-30 * time.Second) }, "[KillContainer a (did not stop within 30s)]", 0},
		{"a kill takes time", func(o *plan.Observed, c *runner.Container) {
			c.StopSentAt, o.Killed = zero.Add(-time.Minute), map[string]time.Time{"id-a": zero.Add(-9 * time.Second)}
		}, "[]", 1},
		{"it is killed again", func(o *plan.Observed, c *runner.Container) {
			c.StopSentAt, o.Killed = zero.Add(-time.Minute), map[string]time.Time{"id-a": zero.Add(-10 * time.Second)}
		}, "[KillContainer a (did not stop within 30s)]", 0},
		{"a kill in the future does not count", func(o *plan.Observed, c *runner.Container) {
			c.StopSentAt, o.Killed = zero.Add(-time.Minute), map[string]time.Time{"id-a": zero.Add(time.Hour)}
		}, "[KillContainer a (did not stop within 30s)]", 0},
		{"a signal from the future", func(_ *plan.Observed, c *runner.Container) { c.StopSentAt = zero.Add(time.Second) }, "[KillContainer a (did not stop within 30s)]", 0},
		{"another grace period", func(o *plan.Observed, _ *runner.Container) { o.Grace = seconds(5) }, "[StopContainer a (pod removed)]", 5},
		{"none", func(o *plan.Observed, _ *runner.Container) { o.Grace = seconds(0) }, "[StopContainer a (pod removed) KillContainer a (grace period 0)]", 0},
		{"the record has no manifest", func(o *plan.Observed, _ *runner.Container) { o.Sandbox.Pod = nil }, "[StopContainer a (pod removed)]", 30},
		{"the signal failed just now", func(o *plan.Observed, _ *runner.Container) {
			o.Failures = map[string]plan.Failure{"id:id-a": {Count: 3, At: zero}}
		}, "[]", 4},
		{"its failure is over", func(o *plan.Observed, _ *runner.Container) {
			o.Failures = map[string]plan.Failure{"id:id-a": {Count: 3, At: zero.Add(-4 * time.Second)}}
		}, "[StopContainer a (pod removed)]", 30},
		{"a failure in the future does not block", func(o *plan.Observed, _ *runner.Container) {
			o.Failures = map[string]plan.Failure{"id:id-a": {Count: 3, At: zero.Add(time.Second)}}
		}, "[StopContainer a (pod removed)]", 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(pod)
			c.change(&o, &o.Containers[0])
			wantPlan(t, nil, o, c.want)
			_, next := plan.Plan(zero, nil, o)
			if c.next == 0 && !next.IsZero() || c.next != 0 && !next.Equal(zero.Add(time.Duration(c.next)*time.Second)) {
				t.Errorf("next %s, want in %d s", next, c.next)
			}
		})
	}
}

func TestStopSignalOfTheManifest(t *testing.T) {
	pod := edited(testPod("x", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)), func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGUSR1)}
	})
	actions := wantPlan(t, nil, runs(pod), "[StopContainer a (pod removed) StopContainer b (pod removed)]")
	if actions[0].Signal != "SIGUSR1" || actions[1].Signal != "" {
		t.Errorf("signals %q, %q", actions[0].Signal, actions[1].Signal)
	}
}

func TestSidecarsStopInReverseOrderAfterTheOthers(t *testing.T) {
	pod := initPod("x", testSidecar("one", runtimetest.ScriptServe), testContainer("init", ""), testSidecar("two", runtimetest.ScriptServe))
	all := runs(edited(pod, func(p *corev1.Pod) {
		p.Spec.Containers = append(append([]corev1.Container{}, p.Spec.InitContainers...), p.Spec.Containers...)
	}))
	all.Sandbox.Pod = pod
	byName := map[string]runner.Container{}
	for _, c := range all.Containers {
		byName[c.Name] = c
	}
	stopping := func(c runner.Container) runner.Container {
		return with(c, func(c *runner.Container) { c.StoppingAt = zero.Add(-10 * time.Second) })
	}
	one, two, main := byName["one"], byName["two"], byName["main"]
	for _, c := range []struct {
		name string
		all  []runner.Container
		want string
	}{
		{"all run", []runner.Container{one, two, main}, "[StopContainer main (pod removed) MarkStopping two (pod removed) MarkStopping one (pod removed)]"},
		{"only sidecars run", []runner.Container{stopping(one), stopping(two)}, "[StopContainer two (pod removed)]"},
		{"one sidecar runs", []runner.Container{stopping(one)}, "[StopContainer one (pod removed)]"},
		{"the grace period of all is over", []runner.Container{
			with(one, func(c *runner.Container) { c.StoppingAt = zero.Add(-30 * time.Second) }), stopping(two),
			with(main, func(c *runner.Container) { c.StopSentAt = zero.Add(-10 * time.Second) }),
		}, "[StopContainer one (pod removed)]"},
		{"none runs", nil, "[RemoveSandbox (pod removed)]"},
	} {
		o := all
		o.Containers = c.all
		t.Run(c.name, func(t *testing.T) { wantPlan(t, nil, o, c.want) })
	}
}

func TestPlaceOfAPodIsReleasedOnRemoval(t *testing.T) {
	pod := testPod("x", testContainer("a", ""))
	o := plan.Observed{PodState: runner.PodState{Place: pod}}
	wantPlan(t, nil, o, "[RemoveSandbox (pod removed)]")
	o.Failures = map[string]plan.Failure{"": {Count: 1, At: zero}}
	wantPlan(t, nil, o, "[]")
	wantPlan(t, nil, plan.Observed{}, "[]")
}
