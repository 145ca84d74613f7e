package admit_test

import "monopod/runner/runtimetest"

// Short names of the builders of runtimetest.
var (
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	edited        = runtimetest.Edited
	key           = runtimetest.KeyOf
	requesting    = runtimetest.Requesting
	portPod       = runtimetest.WithHostPorts
)
