package admit_test

import "monopod/runner/runtimetest"

// The builders of runtimetest, in short.
var (
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	edited        = runtimetest.Edited
	key           = runtimetest.KeyOf
	requesting    = runtimetest.Requesting
	portPod       = runtimetest.WithHostPorts
)
