package plan_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

func TestTheResolvedHook(t *testing.T) {
	c := testContainer("a", "")
	c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/up", Scheme: "HTTP"}}}
	c.Lifecycle.PostStart.HTTPGet.Port.IntVal = 80
	for _, host := range []bool{false, true} {
		pod := edited(testPod("web", c), func(p *corev1.Pod) { p.Spec.HostNetwork = host })
		sb := &runner.Sandbox{ID: "s", Hash: podhash.Sandbox(pod.Object), Pod: pod, Alive: true, Network: runner.NetworkReady, IPs: []string{"10.0.0.5"}}
		want := "GET http://10.0.0.5:80/up"
		if host {
			sb.IPs, want = nil, "GET http://127.0.0.1:80/up"
		}
		i := running("1", "a", 1)
		i.Hash, i.PostStart = podhash.Container(pod.Object, "a"), runner.PostStartPending
		actions, _ := plan.Plan(at(100), pod, plan.Observed{PodState: runner.PodState{Sandbox: sb, Containers: []runner.Container{i}}})
		if len(actions) != 1 || actions[0].Kind != runner.RunHook || actions[0].Handler.String() != want || !errors.Is(actions[0].Handler.Err, nil) {
			t.Errorf("host network %t: %v", host, actions)
		}
	}
}

func TestPostStartHookDecidesAboutItsContainer(t *testing.T) {
	pod := testPod("x", hooked(testContainer("a", runtimetest.ScriptServe), "warm up", ""), testContainer("b", runtimetest.ScriptServe))
	for _, c := range []struct {
		name    string
		desired *manifests.Pod
		state   plan.HookState
		change  func(*plan.Observed)
		want    string
	}{
		{"it has not run", pod, "", nil, "[RunHook a (postStart)]"},
		{"it runs", pod, plan.HookRunning, nil, "[]"},
		{"it succeeded", pod, plan.HookDone, nil, "[MarkStarted a (postStart hook succeeded)]"},
		{"it failed", pod, plan.HookFailed, nil, "[StopContainer a (postStart hook failed)]"},
		{"the result is on record", pod, plan.HookFailed, func(o *plan.Observed) { o.Containers[0].PostStart = runner.PostStartDone }, "[]"},
		{"the container is stopping", pod, "", func(o *plan.Observed) { o.Containers[0].StopSentAt = zero }, "[]"},
		{"the last step failed just now", pod, plan.HookDone, func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"id:id-a": {Count: 1, At: zero}}
		}, "[]"},
		{
			"an edit removed it", edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = nil }), "", nil,
			"[MarkStarted a (postStart hook removed from the manifest) RecordPod (manifest changed)]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(pod)
			o.Containers[0].PostStart = runner.PostStartPending
			o.Hooks = map[plan.HookKey]plan.HookState{{ContainerID: "id-a", Hook: runner.PostStartHook}: c.state}
			if c.change != nil {
				c.change(&o)
			}
			wantPlan(t, c.desired, o, c.want)
		})
	}
}

func TestPostStartHookDelaysLaterContainers(t *testing.T) {
	pod := testPod("x", hooked(testContainer("a", runtimetest.ScriptServe), "warm up", ""), testContainer("b", runtimetest.ScriptServe))
	o := runs(pod)
	all := o.Containers
	o.Containers = nil
	wantPlan(t, pod, o, "[EnsureImage a CreateContainer a (first start) StartContainer a (first start)]")
	o.Containers = all[:1]
	all[0].PostStart = runner.PostStartPending
	o.Hooks = map[plan.HookKey]plan.HookState{{ContainerID: "id-a", Hook: runner.PostStartHook}: plan.HookRunning}
	wantPlan(t, pod, o, "[]")
	all[0].PostStart = runner.PostStartDone
	wantPlan(t, pod, o, "[EnsureImage b CreateContainer b (first start) StartContainer b (first start)]")
	o.Containers, o.Prepared = nil, map[string]plan.Preparation{"a": plan.PreparationRunning}
	wantPlan(t, pod, o, "[]") // b would overtake a, which waits only for its image
}

func TestPreStopHookDelaysTheSignal(t *testing.T) {
	pod := testPod("x", hooked(testContainer("a", runtimetest.ScriptServe), "", "say bye"))
	const begins, signal = "MarkStopping a (pod removed)", "StopContainer a (pod removed)"
	for _, c := range []struct {
		name     string
		stopping time.Duration // before now; 0: not yet
		state    plan.HookState
		grace    int64
		want     string
		limit    time.Duration // of the hook
	}{
		{"it begins", 0, "", 30, "[" + begins + " RunHook a (preStop)]", 30 * time.Second},
		{"it runs", time.Second, plan.HookRunning, 30, "[]", 0},
		{"the agent restarted meanwhile", 10 * time.Second, "", 30, "[RunHook a (preStop)]", 20 * time.Second},
		{"it succeeded", 10 * time.Second, plan.HookDone, 30, "[" + signal + "]", 0},
		{"it failed", 10 * time.Second, plan.HookFailed, 30, "[" + signal + "]", 0},
		{"the grace period is over", 30 * time.Second, plan.HookRunning, 30, "[" + signal + "]", 0},
		{"the clock was set back", -time.Second, plan.HookRunning, 30, "[" + signal + "]", 0},
		{"an edit shortened the grace period", 10 * time.Second, plan.HookRunning, 5, "[" + signal + "]", 0},
		{"there is no grace period", 0, "", 0, "[" + signal + " KillContainer a (grace period 0)]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(edited(pod, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &c.grace }))
			if c.stopping != 0 {
				o.Containers[0].StoppingAt = zero.Add(-c.stopping)
			}
			o.Hooks = map[plan.HookKey]plan.HookState{{ContainerID: "id-a", Hook: runner.PreStopHook}: c.state}
			actions := wantPlan(t, nil, o, c.want)
			for _, a := range actions {
				if a.Kind == runner.RunHook && a.Timeout != c.limit {
					t.Errorf("the hook may take %s, want %s", a.Timeout, c.limit)
				}
			}
		})
	}
}

// An instance that is being replaced has the preStop hook that it was created with; an edit of the hook alone applies at once.
func TestPreStopHookOfTheRightManifest(t *testing.T) {
	old := testPod("x", hooked(testContainer("a", runtimetest.ScriptServe), "", "old"))
	for want, desired := range map[string]*manifests.Pod{
		"exec old": edited(old, func(p *corev1.Pod) {
			p.Spec.Hostname, p.Spec.Containers[0] = "other", hooked(p.Spec.Containers[0], "", "new")
			p.Spec.Containers[0].Image = "busybox:2"
		}),
		"exec new": edited(old, func(p *corev1.Pod) {
			p.Spec.Hostname, p.Spec.Containers[0] = "other", hooked(p.Spec.Containers[0], "", "new")
		}),
	} {
		actions, _ := plan.Plan(zero, desired, runs(old))
		if n := len(actions); n != 3 || actions[2].Kind != runner.RunHook || actions[2].Handler.String() != want {
			t.Errorf("%v, want the hook %s", actions, want)
		}
	}
}
