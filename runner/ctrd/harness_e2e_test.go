//go:build e2e

package ctrd_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/runner"
	"monopod/runner/ctrd/layout"
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
		startContainerd(t, w)
		return harness(t, w)
	})
}

// startContainerd runs a containerd of its own for the world.
func startContainerd(t testing.TB, w *ctrdtest.World) {
	t.Helper()
	if w.Endpoint == "" {
		w.Endpoint = "unix://" + filepath.Join(w.Run, "c.sock")
		t.Cleanup(func() { stopContainerd(t, w) })
	}
	conf := filepath.Join(w.Dir, "containerd.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.runtime\", \"io.containerd.cri.v1.images\"]\n"+
		"[grpc]\naddress = %q\n[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q\n",
		filepath.Join(w.Dir, "croot"), filepath.Join(w.Run, "c"), layout.EndpointPath(w.Endpoint), filepath.Join(w.Run, "s"))
	ctrdtest.Check(t, os.WriteFile(conf, []byte(text), 0o600))
	log, err := os.OpenFile(filepath.Join(w.Dir, "containerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ctrdtest.Check(t, err)
	defer func() { _ = log.Close() }()
	w.Containerd = exec.Command(filepath.Join(os.Getenv(ctrdtest.EnvPrograms), "containerd"), "--config", conf)
	w.Containerd.Stdout, w.Containerd.Stderr = log, log
	ctrdtest.Check(t, w.Containerd.Start())
	ctrdtest.Within(t, 30*time.Second, "containerd listens", func() bool {
		c, err := net.Dial("unix", layout.EndpointPath(w.Endpoint))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func stopContainerd(t testing.TB, w *ctrdtest.World) {
	t.Helper()
	if w.Containerd == nil {
		return
	}
	ctrdtest.Check(t, w.Containerd.Process.Kill())
	_ = w.Containerd.Wait()
	w.Containerd = nil
}
