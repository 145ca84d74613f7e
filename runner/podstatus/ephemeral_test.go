package podstatus_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
)

// withDebugger gives the sandbox the ephemeral container dbg.
func withDebugger(target string) func(*podstatus.Input) {
	return func(in *podstatus.Input) {
		in.Sandbox.Ephemeral = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon(testContainer("dbg", "")), TargetContainerName: target,
		}}
	}
}

func TestStatusOfEphemeralContainers(t *testing.T) {
	a := running("1", "a", 1)
	failure := func(reason string) map[string]plan.Failure {
		return map[string]plan.Failure{"dbg": {Reason: reason, Message: "no", Count: 1, At: at(99)}}
	}
	for _, tt := range []struct {
		name   string
		target string
		c      statusCase
		state  string
		why    string
	}{
		{"not created yet", "", statusCase{instances: []runner.Container{a}}, "waiting ContainerCreating", ""},
		{"created", "", statusCase{instances: []runner.Container{a, created("2", "dbg")}}, "waiting ContainerCreating", ""},
		{"running", "", statusCase{instances: []runner.Container{a, running("2", "dbg", 50)}}, "running", ""},
		{"failed: the pod is well", "", statusCase{instances: []runner.Container{a, exited("2", "dbg", 3, 60)}}, "terminated 3", ""},
		{
			"its exit is not known", "",
			statusCase{instances: []runner.Container{a, with(exited("2", "dbg", 3, 60), func(c *runner.Container) { c.Exit = nil })}},
			"terminated 255", "",
		},
		{
			"its image is pulled", "",
			statusCase{instances: []runner.Container{a}, prepared: map[string]plan.Preparation{"dbg": plan.PreparationRunning}},
			"waiting ContainerCreating pulling image busybox:1", "",
		},
		{
			"its image cannot be pulled", "",
			statusCase{instances: []runner.Container{a}, failures: failure(runner.ReasonErrImagePull)},
			`waiting ImagePullBackOff Back-off pulling image "busybox:1": ErrImagePull: no`, "ephemeral container dbg: ",
		},
		{
			"it cannot be created", "",
			statusCase{instances: []runner.Container{a}, failures: failure(runner.ReasonCreateContainerConfigError)},
			"waiting CreateContainerConfigError no", "ephemeral container dbg: ",
		},
		{"its target does not run", "a", statusCase{}, "waiting ContainerCreating waiting for target container a to run", "container a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.change = withDebugger(tt.target)
			s := podstatus.Of(tt.c.input("a"))
			if n := len(s.Pod.Spec.EphemeralContainers); n != 1 || len(s.Pod.Status.EphemeralContainerStatuses) != 1 || len(s.Pod.Status.ContainerStatuses) != 1 {
				t.Fatalf("%d in the spec, status %+v", n, s.Pod.Status)
			}
			st := s.Pod.Status.EphemeralContainerStatuses[0]
			if got := stateOf(&st); got != tt.state || st.Ready || st.RestartCount != 0 || st.Started != nil {
				t.Errorf("%s: %+v", got, st)
			}
			if tt.why == "" && s.Why != "" || !strings.Contains(s.Why, tt.why) {
				t.Errorf("why %q", s.Why)
			}
		})
	}
}

func stateOf(st *corev1.ContainerStatus) string {
	switch {
	case st.State.Waiting != nil:
		return strings.TrimSpace("waiting " + st.State.Waiting.Reason + " " + st.State.Waiting.Message)
	case st.State.Running != nil:
		return "running"
	}
	return fmt.Sprint("terminated ", st.State.Terminated.ExitCode)
}

func TestEphemeralContainersDoNotChangeThePod(t *testing.T) {
	for _, tt := range []struct {
		name  string
		c     statusCase
		phase corev1.PodPhase
	}{
		{"it has failed", statusCase{instances: []runner.Container{running("1", "a", 1), exited("2", "dbg", 3, 60)}}, corev1.PodRunning},
		{
			"it runs in a pod that has completed",
			statusCase{policy: corev1.RestartPolicyNever, instances: []runner.Container{exited("1", "a", 0, 50), running("2", "dbg", 10)}},
			corev1.PodSucceeded,
		},
	} {
		before := podstatus.Of(tt.c.input("a"))
		tt.c.change = withDebugger("")
		now := podstatus.Of(tt.c.input("a"))
		if now.Pod.Status.Phase != tt.phase || len(now.Pod.Status.Conditions) == 0 {
			t.Errorf("%s: %s", tt.name, now.Pod.Status.Phase)
		}
		if b, n := conditionsOf(before.Pod), conditionsOf(now.Pod); b[corev1.PodReady].Status != n[corev1.PodReady].Status {
			t.Errorf("%s: Ready %s, was %s", tt.name, n[corev1.PodReady].Status, b[corev1.PodReady].Status)
		}
	}
}

func TestEndsOfEphemeralContainersAreKeptWhileAPodEnds(t *testing.T) {
	c := statusCase{instances: []runner.Container{running("1", "a", 1), exited("2", "dbg", 3, 60)}, change: withDebugger("")}
	before := podstatus.Of(c.input("a")).Pod
	c.instances = nil
	shown := podstatus.WithEnds(before, podstatus.Of(c.input("a")).Pod)
	if got := stateOf(&shown.Status.EphemeralContainerStatuses[0]); got != "terminated 3" {
		t.Error(got)
	}
}
