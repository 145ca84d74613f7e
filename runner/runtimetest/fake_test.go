package runtimetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"monopod/runner"
	"monopod/runner/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheFakePassesTheContract(t *testing.T) {
	runtimetest.Contract(t, func(*testing.T) runtimetest.Harness {
		f := runtimetest.NewFake()
		f.SetImage("missing:1", false)
		return runtimetest.Harness{
			Runtime: f,
			Restart: func(_ *testing.T, meanwhile func()) runner.Runtime {
				f.Kill()
				if meanwhile != nil {
					meanwhile()
				}
				f = f.Restart()
				return f
			},
			Image:        "busybox:1",
			MissingImage: "missing:1",
			KillProcess:  f.KillProcess,
			ProcessAlive: f.ProcessAlive,
			HandlesTerm:  func(uint32) bool { return true },
			OOM:          true,
			PodNetwork:   true,
		}
	})
}
