package pool_test

import "monopod/runner/runtimetest"

// Short names of the builders of runtimetest.
var (
	requesting    = runtimetest.Requesting
	portPod       = runtimetest.WithHostPorts
	testPod       = runtimetest.NewPod
	testContainer = runtimetest.NewContainer
	edited        = runtimetest.Edited
	key           = runtimetest.KeyOf
	at            = runtimetest.At
	conditionsOf  = runtimetest.ConditionsOf
	initPod       = runtimetest.WithInit
	testSidecar   = runtimetest.NewSidecar
	hooked        = runtimetest.Hooked
	execHook      = runtimetest.ExecHook
	asking        = runtimetest.ExecProbe
	ruled         = runtimetest.Ruled
	onCodes       = runtimetest.OnCodes
	diskPod       = runtimetest.DiskPod
	bound         = runtimetest.Bound
)
