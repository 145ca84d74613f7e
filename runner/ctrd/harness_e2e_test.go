//go:build e2e

package ctrd_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

func harness(t *testing.T, w *ctrdtest.World) runtimetest.Harness {
	a := w.Open(t)
	t.Cleanup(func() { a.End(t) })
	return runtimetest.Harness{
		Runtime: a,
		Restart: func(t *testing.T, meanwhile func()) runner.Runtime {
			a.Stop(t)
			if meanwhile != nil {
				meanwhile()
			}
			*a = *w.Open(t)
			return a
		},
		Image:        ctrdtest.TestImage,
		MissingImage: "example.com/missing:1",
		KillProcess:  func(pid uint32) error { return unix.Kill(int(pid), unix.SIGKILL) },
		ProcessAlive: ctrdtest.Alive,
		OOM:          true,
		PodNetwork:   true,
	}
}

func TestTheEmbeddedContainerdPassesTheContract(t *testing.T) {
	runtimetest.Contract(t, func(t *testing.T) runtimetest.Harness { return harness(t, ctrdtest.NewWorld(t)) })
}

func TestAnExternalContainerdPassesTheContract(t *testing.T) {
	runtimetest.Contract(t, func(t *testing.T) runtimetest.Harness {
		w := ctrdtest.NewWorld(t)
		ctrdtest.StartContainerd(t, w)
		return harness(t, w)
	})
}
