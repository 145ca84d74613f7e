package podstatus_test

import "monopod/runner/runtimetest"

// Short names of the builders of runtimetest.
var (
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	edited        = runtimetest.Edited
	at            = runtimetest.At
	running       = runtimetest.Running
	exited        = runtimetest.Exited
	created       = runtimetest.Created
	with          = runtimetest.With
	conditionsOf  = runtimetest.ConditionsOf
)
