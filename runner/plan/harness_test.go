package plan_test

import (
	"fmt"
	"testing"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

// Short names of the builders of runtimetest.
var (
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	testSidecar   = runtimetest.NewSidecar
	initPod       = runtimetest.WithInit
	edited        = runtimetest.Edited
	hooked        = runtimetest.Hooked
	ruled         = runtimetest.Ruled
	onCodes       = runtimetest.OnCodes
	running       = runtimetest.Running
	exited        = runtimetest.Exited
	created       = runtimetest.Created
	with          = runtimetest.With
	at            = runtimetest.At
)

// wantPlan plans at zero and compares the actions.
func wantPlan(t *testing.T, desired *manifests.Pod, o plan.Observed, want string) []runner.Action {
	t.Helper()
	actions, _ := plan.Plan(zero, desired, o)
	if got := fmt.Sprint(actions); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	return actions
}
