package plan_test

import "monopod/runner/runtimetest"

// The builders of runtimetest, in short.
var (
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	edited        = runtimetest.Edited
	running       = runtimetest.Running
	exited        = runtimetest.Exited
	created       = runtimetest.Created
	with          = runtimetest.With
)
