package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
	"monopod/runner/runtimetest"
)

const (
	restart    = corev1.ContainerRestartRuleActionRestart
	restartAll = corev1.ContainerRestartRuleActionRestartAllContainers
	in         = corev1.ContainerRestartRuleOnExitCodesOpIn
	notIn      = corev1.ContainerRestartRuleOnExitCodesOpNotIn
)

func TestAContainerCanHaveAPolicyOfItsOwn(t *testing.T) {
	tests := []struct {
		name   string
		pod    corev1.RestartPolicy
		c      corev1.Container
		code   int
		wanted bool
	}{
		{"its policy beats the pod's", "Always", ruled(testContainer("a", ""), "Never"), 1, false},
		{"also the other way round", "Never", ruled(testContainer("a", ""), "Always"), 0, true},
		{"OnFailure after a success", "Always", ruled(testContainer("a", ""), "OnFailure"), 0, false},
		{"OnFailure after a failure", "Never", ruled(testContainer("a", ""), "OnFailure"), 1, true},
		{"a rule that matches beats its policy", "Never", ruled(testContainer("a", ""), "Never", onCodes(restart, in, 42, 43)), 43, true},
		{"a rule that does not match", "Always", ruled(testContainer("a", ""), "Never", onCodes(restart, in, 42)), 1, false},
		{"a rule about all other codes", "Never", ruled(testContainer("a", ""), "Never", onCodes(restart, notIn, 0, 1)), 2, true},
		{"and those it leaves out", "Never", ruled(testContainer("a", ""), "Never", onCodes(restart, notIn, 0, 1)), 1, false},
		{"without either it is the pod's", "Never", testContainer("a", ""), 1, false},
	}
	for _, tt := range tests {
		c := exited("1", "a", tt.code, 9)
		spec := corev1.PodSpec{RestartPolicy: tt.pod, Containers: []corev1.Container{tt.c}}
		if got := plan.NextRestart(at(10), &spec, &c, plan.Options{}).Wanted; got != tt.wanted {
			t.Errorf("%s: restarted is %t", tt.name, got)
		}
		spec = corev1.PodSpec{RestartPolicy: tt.pod, InitContainers: []corev1.Container{tt.c}}
		want := tt.wanted && tt.code != 0 // an init container that has succeeded is not run again
		want = want || manifests.IsSidecar(&tt.c)
		if got := plan.NextRestart(at(10), &spec, &c, plan.Options{}).Wanted; got != want {
			t.Errorf("%s: as an init container: restarted is %t", tt.name, got)
		}
	}
}

// restarter returns a pod whose container main restarts all containers when it exits with 42.
func restarter() *manifests.Pod {
	return testPod("x", ruled(testContainer("main", runtimetest.ScriptServe), "Never", onCodes(restartAll, in, 42)), testContainer("b", runtimetest.ScriptServe))
}

func TestExitsThatRestartAllContainers(t *testing.T) {
	spec := &restarter().Object.Spec
	asInit := spec.DeepCopy()
	asInit.InitContainers, asInit.Containers = asInit.Containers[:1], asInit.Containers[1:]
	asInit.InitContainers[0].RestartPolicyRules = []corev1.ContainerRestartRule{onCodes(restartAll, in, 0, 42)}
	for _, c := range []struct {
		name string
		pod  *corev1.PodSpec
		c    runner.Container
		want bool
	}{
		{"the code of the rule", spec, exited("1", "main", 42, 9), true},
		{"another code", spec, exited("1", "main", 1, 9), false},
		{"a container without rules", spec, exited("1", "b", 42, 9), false},
		{"a container that the pod lacks", spec, exited("1", "gone", 42, 9), false},
		{"it still runs", spec, running("1", "main", 9), false},
		{"it never ran", spec, with(exited("1", "main", 42, 9), func(c *runner.Container) { c.StartedAt = time.Time{} }), false},
		{"it was stopped", spec, with(exited("1", "main", 42, 9), func(c *runner.Container) { c.StopSentAt = at(8) }), false},
		{"its probe stopped it", spec, with(exited("1", "main", 42, 9), func(c *runner.Container) {
			c.StopSentAt, c.StopCause = at(8), runner.StopLivenessProbe
		}), true},
		{"an init container that failed", asInit, exited("1", "main", 42, 9), true},
		{"an init container that succeeded", asInit, exited("1", "main", 0, 9), false},
	} {
		if got := retry.RestartsAll(c.pod, &c.c); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

func TestRoundOfAPod(t *testing.T) {
	spec := &restarter().Object.Spec
	round := func(c runner.Container, n int) runner.Container { c.Round = n; return c }
	s := &runner.Sandbox{ID: "s"}
	for _, c := range []struct {
		name    string
		sandbox *runner.Sandbox
		all     []runner.Container
		want    int
	}{
		{"nothing exists", nil, nil, 0},
		{"no sandbox", nil, []runner.Container{round(exited("1", "main", 42, 9), 3)}, 0},
		{"all run", s, []runner.Container{running("1", "main", 1), running("2", "b", 1)}, 0},
		{"the exit that begins the next round", s, []runner.Container{exited("1", "main", 42, 9), running("2", "b", 1)}, 1},
		{"the round has begun", s, []runner.Container{exited("1", "main", 42, 9), round(created("3", "main"), 1)}, 1},
		{"an exit of an earlier round is past", s, []runner.Container{exited("1", "main", 42, 9), round(running("3", "main", 10), 1)}, 1},
		{"the next round ends the same way", s, []runner.Container{round(exited("3", "main", 42, 19), 1)}, 2},
		{"another sandbox does not count", &runner.Sandbox{ID: "t"}, []runner.Container{round(exited("3", "main", 42, 19), 1)}, 0},
	} {
		if got := plan.RoundOf(spec, &runner.PodState{Sandbox: c.sandbox, Containers: c.all}); got != c.want {
			t.Errorf("%s: round %d, want %d", c.name, got, c.want)
		}
	}
}

func TestARestartOfAllStopsTheOthersFirst(t *testing.T) {
	pod := restarter()
	o := runs(pod)
	o.Containers[0] = with(exited("id-main", "main", 42, -1), func(c *runner.Container) { c.Hash, c.SandboxID = o.Containers[0].Hash, "s1" })
	actions := wantPlan(t, pod, o, "[StopContainer b (all containers are restarted)]")
	if actions[0].Cause != runner.StopRestartAll {
		t.Errorf("cause %q", actions[0].Cause)
	}
	b := o.Containers[1]
	o.Containers[1] = with(exited("id-b", "b", 143, 0), func(c *runner.Container) {
		c.Hash, c.SandboxID, c.StopSentAt, c.StopCause, c.RestartCount = b.Hash, "s1", zero, runner.StopRestartAll, 4
	})
	actions = wantPlan(t, pod, o, "[EnsureImage main CreateContainer main (all containers are restarted) StartContainer main (all containers are restarted) "+
		"RemoveContainer main (all containers are restarted) EnsureImage b CreateContainer b (all containers are restarted) "+
		"StartContainer b (all containers are restarted) RemoveContainer b (all containers are restarted)]")
	for _, a := range actions {
		if a.Kind == runner.CreateContainer && (a.Round != 1 || a.Last == nil) {
			t.Errorf("%s: round %d, last %+v", a, a.Round, a.Last)
		}
		if a.Kind == runner.CreateContainer && a.Container == "b" && (a.RestartCount != 5 || a.Last.Reason != runner.ReasonRestartingAllContainers) {
			t.Errorf("%s: %d restarts, last %+v", a, a.RestartCount, a.Last)
		}
	}
	o.Containers[0].BackOff, o.Containers[1].Recorded = 10*time.Second, true
	o.Containers[0].Recorded = true
	if actions, next := plan.Plan(zero, pod, o); len(actions) > 0 || !next.Equal(zero.Add(9*time.Second)) {
		t.Errorf("during the back-off: %v, next %s", actions, next)
	}
}
