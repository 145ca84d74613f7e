package pool_test

import "monopod/runner/runtimetest"

// The builders of runtimetest, in short.
var (
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	edited        = runtimetest.Edited
	key           = runtimetest.KeyOf
	at            = runtimetest.At
	running       = runtimetest.Running
	exited        = runtimetest.Exited
	conditionsOf  = runtimetest.ConditionsOf
)
