//go:build e2e

package ctrdtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"monopod/runner/ctrd/layout"
)

// StartContainerd runs a containerd of its own for a world, which then is an external one for its agents.
func StartContainerd(t testing.TB, w *World) {
	t.Helper()
	if w.Endpoint == "" {
		w.Endpoint = "unix://" + filepath.Join(w.Run, "c.sock")
		t.Cleanup(func() { StopContainerd(t, w) })
	}
	conf := filepath.Join(w.Dir, "containerd.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.runtime\", \"io.containerd.cri.v1.images\"]\n"+
		"[grpc]\naddress = %q\n[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q\n",
		filepath.Join(w.Dir, "croot"), filepath.Join(w.Run, "c"), layout.EndpointPath(w.Endpoint), filepath.Join(w.Run, "s"))
	Check(t, os.WriteFile(conf, []byte(text), 0o600))
	log, err := os.OpenFile(filepath.Join(w.Dir, "containerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	Check(t, err)
	defer func() { _ = log.Close() }()
	w.Containerd = exec.Command(filepath.Join(os.Getenv(EnvPrograms), "tools", "containerd"), "--config", conf)
	w.Containerd.Stdout, w.Containerd.Stderr = log, log
	Check(t, w.Containerd.Start())
	Within(t, 30*time.Second, "containerd listens", func() bool {
		c, err := net.Dial("unix", layout.EndpointPath(w.Endpoint))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// StopContainerd kills the containerd of the world, if it runs.
func StopContainerd(t testing.TB, w *World) {
	t.Helper()
	if w.Containerd == nil {
		return
	}
	Check(t, w.Containerd.Process.Kill())
	_ = w.Containerd.Wait()
	w.Containerd = nil
}
