package plan_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

func TestEvictedPodsThatComeBack(t *testing.T) {
	for _, c := range []struct {
		reason string
		policy corev1.RestartPolicy
		source string
		want   bool
	}{
		{runner.ReasonEvicted, "Always", "file", true},
		{runner.ReasonPreempting, "OnFailure", "file", true},
		{runner.ReasonEvicted, "Never", "file", false},
		{runner.ReasonEvicted, "Always", manifests.SourceAPIServer, false},
		{runner.ReasonDeadlineExceeded, "Always", "file", false},
		{"", "Always", "file", false},
	} {
		if got := plan.ReturnsAfter(c.reason, &corev1.PodSpec{RestartPolicy: c.policy}, manifests.Origin{Source: c.source}); got != c.want {
			t.Errorf("%s, %s, from %s: %t", c.reason, c.policy, c.source, got)
		}
	}
}

func TestEvictionsBackOff(t *testing.T) {
	for _, c := range []struct {
		evictions int
		lived     time.Duration
		max       time.Duration
		want      time.Duration
	}{
		{0, time.Minute, 0, 10 * time.Second},
		{1, time.Minute, 0, 20 * time.Second},
		{4, time.Minute, 0, 160 * time.Second},
		{5, time.Minute, 0, 300 * time.Second},
		{500, 10 * time.Minute, 0, 300 * time.Second},
		{500, 10*time.Minute + 1, 0, 10 * time.Second},
		{0, time.Minute, 3 * time.Second, 3 * time.Second},
		{9, time.Minute, 3 * time.Second, 3 * time.Second},
	} {
		sb := &runner.Sandbox{Evictions: c.evictions, CreatedAt: zero.Add(-c.lived), Failed: &runner.PodFailure{At: zero}}
		if got := plan.EvictionOver(sb, plan.Options{MaxBackOff: c.max}).Sub(zero); got != c.want {
			t.Errorf("eviction %d after %s waits %s, want %s", c.evictions+1, c.lived, got, c.want)
		}
	}
}

func TestPodOverItsDiskLimitIsEvicted(t *testing.T) {
	pod := edited(runtimetest.DiskPod(), func(p *corev1.Pod) { p.Spec.InitContainers = nil })
	o := runs(pod)
	o.Sandbox.Disk = &runner.DiskUsage{EmptyDirs: map[string]int64{"v": 2 << 20}}
	message := `Usage of EmptyDir volume "v" exceeds the limit "1Mi".`
	actions := wantPlan(t, pod, o, "[FailPod ("+message+") StopContainer a (pod has failed) StopContainer b (pod has failed)]")
	if a := actions[0]; a.Failure != runner.ReasonEvicted || a.Message != message || a.FailureCause != (cause.Cause{Kind: cause.Evicted, Fault: cause.VolumeLimit}) {
		t.Errorf("failure %+v", a)
	}
	if _, next := plan.Plan(zero, pod, o); !next.Equal(zero.Add(time.Second)) { // not the pod's grace period of a minute
		t.Errorf("next %s", next)
	}
	o.Sandbox.Disk.EmptyDirs["v"] = 1 << 20
	wantPlan(t, pod, o, "[]")
}

func TestOrderedEviction(t *testing.T) {
	pod := edited(testPod("x", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(60)) })
	const evicted = "[FailPod (make room) StopContainer a (pod has failed)]"
	for _, c := range []struct {
		name  string
		uid   string
		grace time.Duration
		want  string
		kill  time.Duration
	}{
		{"its manifest decides", "u", -1, evicted, time.Minute},
		{"a bound", "u", 7 * time.Second, evicted, 7 * time.Second},
		{"a bound beyond that of the manifest", "u", time.Hour, evicted, time.Minute},
		{"at once is one second", "u", 0, evicted, time.Second},
		{"the order is for an earlier pod", "former", -1, "[]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(pod)
			o.Evict = &plan.Eviction{UID: c.uid, Reason: runner.ReasonPreempting, Message: "make room", Grace: c.grace}
			wantPlan(t, pod, o, c.want)
			if _, next := plan.Plan(zero, pod, o); c.kill != 0 && !next.Equal(zero.Add(c.kill)) {
				t.Errorf("killed at %s, want %s", next, zero.Add(c.kill))
			}
		})
	}
}

func TestEvictedPodIsRecreatedAfterItsBackOff(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	const reason = " (recreating the evicted pod)"
	const back = "[RemoveContainer a" + reason + " RemoveSandbox" + reason + " CreateSandbox" + reason +
		" EnsureImage a CreateContainer a (first start) StartContainer a (first start)]"
	for _, c := range []struct {
		name   string
		failed time.Duration // before now
		change func(*plan.Observed)
		want   string
		next   time.Duration
	}{
		{"too early", 9 * time.Second, nil, "[]", time.Second},
		{"due", 10 * time.Second, nil, back, 0},
		{"the clock was set back", -time.Hour, nil, back, 0},
		{"another pod has the room", time.Hour, func(o *plan.Observed) { o.Waits = true }, "[]", 0},
		{"its sandbox cannot be removed now", time.Hour, func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"": {Count: 1, At: zero}}
		}, "[]", time.Second},
		{"it was evicted before", 10 * time.Second, func(o *plan.Observed) { o.Sandbox.Evictions = 1 }, "[]", 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := failedPod(pod, runner.ReasonEvicted)
			o.Sandbox.Failed.At = zero.Add(-c.failed)
			if c.change != nil {
				c.change(&o)
			}
			actions := wantPlan(t, pod, o, c.want)
			for _, a := range actions {
				if a.Kind == runner.CreateSandbox && a.Evictions != 1 {
					t.Errorf("it has been evicted %d times", a.Evictions)
				}
			}
			if _, next := plan.Plan(zero, pod, o); c.next != 0 && !next.Equal(zero.Add(c.next)) || c.next == 0 && !next.IsZero() {
				t.Errorf("next %s, want %s", next, c.next)
			}
		})
	}
}

func TestPodEvictedFromAFullDiskGivesBackWhatItWrote(t *testing.T) {
	pod := edited(testPod("x", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	for _, c := range []struct {
		reason, resource string
		recorded         bool
		want             string
	}{
		{runner.ReasonEvicted, runner.ResourceDisk, true, "[RemoveContainer a (evicted: releasing its disk space)]"},
		{runner.ReasonEvicted, runner.ResourceInodes, true, "[RemoveContainer a (evicted: releasing its disk space)]"},
		{runner.ReasonEvicted, runner.ResourceDisk, false, "[FinishContainer a (exited with 137)]"},
		{runner.ReasonEvicted, "memory", true, "[]"},
		{runner.ReasonPreempting, runner.ResourceDisk, true, "[]"},
	} {
		o := failedPod(pod, c.reason)
		o.Sandbox.Failed.Cause.Resource, o.Containers[0].Recorded = c.resource, c.recorded
		wantPlan(t, pod, o, c.want)
	}
}

// The phase of a pod of an API server is final: its controllers replace it under another uid.
func TestEndedPodOfAnAPIServerIsNotChanged(t *testing.T) {
	plain := edited(testPod("x", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	pod := runtimetest.Bound(plain, func(*corev1.Pod) {})
	image := func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }
	succeeded := func(pod *manifests.Pod) plan.Observed {
		o := failedPod(pod, "")
		o.Sandbox.Failed, o.Containers[0].Exit.ExitCode, o.Containers[0].StopSentAt = nil, 0, time.Time{}
		return o
	}
	for _, c := range []struct {
		name    string
		desired *manifests.Pod
		o       plan.Observed
		acts    bool
	}{
		{"completed, not edited", pod, succeeded(pod), false},
		{"completed, edited", runtimetest.Bound(plain, image), succeeded(pod), false},
		{"failed, edited", runtimetest.Bound(plain, image), failedPod(pod, runner.ReasonEvicted), false},
		{"another pod of that name", runtimetest.Bound(plain, func(p *corev1.Pod) { p.UID = "2"; p.Spec.Hostname = "h" }), failedPod(pod, runner.ReasonEvicted), true},
		{"from a file, edited", edited(plain, image), succeeded(plain), true},
	} {
		if actions, _ := plan.Plan(zero, c.desired, c.o); len(actions) > 0 != c.acts {
			t.Errorf("%s: %v", c.name, actions)
		}
	}
}

func TestHaltedPod(t *testing.T) {
	pod := edited(testPod("x", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(60)) })
	for _, c := range []struct {
		name string
		halt runner.Halt
		want string
		kill time.Duration
	}{
		{"drained", runner.Halt{Reason: runner.ReasonDrained}, "[StopContainer a (halted: Drained)]", time.Minute},
		{"shut down", runner.Halt{Reason: runner.ReasonTerminated, Bounded: true, Grace: 3 * time.Second}, "[StopContainer a (halted: Terminated)]", 3 * time.Second},
		{"a bound beyond the manifest's", runner.Halt{Reason: runner.ReasonTerminated, Bounded: true, Grace: time.Hour}, "[StopContainer a (halted: Terminated)]", time.Minute},
		{"handed over", runner.Halt{Reason: runner.ReasonHandedOver, Remove: true}, "[StopContainer a (pod removed)]", time.Minute},
	} {
		o := runs(pod)
		o.Halt = &c.halt
		wantPlan(t, pod, o, c.want)
		if _, next := plan.Plan(zero, pod, o); !next.Equal(zero.Add(c.kill)) {
			t.Errorf("%s: next %s, want %s", c.name, next, c.kill)
		}
	}
	wantPlan(t, pod, plan.Observed{Halt: &runner.Halt{Reason: runner.ReasonDrained}}, "[]")
	o := failedPod(pod, "")
	o.Sandbox.Failed, o.Halt = nil, &runner.Halt{Reason: runner.ReasonDrained}
	stray := o.Containers[0]
	stray.ID, stray.Name = "id-gone", "gone"
	o.Containers = append(o.Containers, stray)
	wantPlan(t, pod, o, "[RemoveContainer gone (container removed from the manifest)]")
	o.Halt.Remove = true
	actions := wantPlan(t, pod, o, "[RemoveContainer a (pod removed) RemoveContainer gone (pod removed) RemoveSandbox (pod removed)]")
	if actions[2].Remade {
		t.Error("a pod that is handed over keeps its place")
	}
}

func TestReasonsOfEvictions(t *testing.T) {
	var evicted []string
	for _, reason := range []string{runner.ReasonEvicted, runner.ReasonPreempting, runner.ReasonDeadlineExceeded, ""} {
		if plan.EvictedFor(reason) {
			evicted = append(evicted, reason)
		}
	}
	if got := strings.Join(evicted, " "); got != "Evicted Preempting" {
		t.Errorf("%q", got)
	}
}
