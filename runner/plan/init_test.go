package plan_test

import (
	"fmt"
	"testing"

	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
)

func TestOOMKilledInitContainerHasNotSucceeded(t *testing.T) {
	c := exited("1", "one", 0, 9)
	c.SandboxID, c.Exit.Reason = "s", runner.ReasonOOMKilled
	pod := initPod("web", testContainer("one", ""))
	c.Hash = podhash.Container(pod.Object, "one")
	o := plan.Observed{PodState: runner.PodState{
		Sandbox:    &runner.Sandbox{ID: "s", Hash: podhash.Sandbox(pod.Object), Pod: pod, Alive: true, Network: runner.NetworkReady},
		Containers: []runner.Container{c},
	}}
	actions, _ := plan.Plan(at(100), pod, o)
	if len(actions) < 2 || actions[1].String() != "CreateContainer one (exited with 0, restart policy Always)" {
		t.Error(fmt.Sprint(actions))
	}
}
