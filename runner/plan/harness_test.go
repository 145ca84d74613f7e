package plan_test

import "monopod/runner/runtimetest"

// Short names of the builders of runtimetest.
var (
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	edited        = runtimetest.Edited
	running       = runtimetest.Running
	exited        = runtimetest.Exited
	created       = runtimetest.Created
	with          = runtimetest.With
)
