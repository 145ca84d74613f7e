//go:build e2e

package ctrdtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/shims"
	"monopod/runner/ctrd/trees"
)

// Output runs a pod to its end, removes it and returns what it wrote.
func (a *Agent) Output(t testing.TB, pod *manifests.Pod) string {
	t.Helper()
	Check(t, StartPod(t.Context(), a, pod))
	c := a.Exit(t, pod.Key())
	Check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: c.ID, Exit: c.Exit}))
	out := a.LogOf(t, pod.Key())
	Check(t, RemovePod(t.Context(), a, pod.Key()))
	a.Idle(t)
	return out
}

// LogOf returns the lines that the pod's newest container has written, without the times.
func (a *Agent) LogOf(t testing.TB, key manifests.Key) string {
	t.Helper()
	all := a.Index.OfPod(key)
	path := all[len(all)-1].Meta.LogPath
	var out strings.Builder
	b, err := os.ReadFile(path)
	Check(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			out.WriteString(f[3])
		}
	}
	return out.String()
}

// PowerCut leaves of an instance what a power cut leaves: no process, no cgroup, no mount, nothing in /run.
func (w *World) PowerCut(t testing.TB, a *Agent, pids ...uint32) {
	t.Helper()
	found := a.Lifecycle.Shims.OwnShims()
	a.Stop(t)
	pids = slices.Clone(pids)
	for _, pid := range pids {
		Check(t, unix.Kill(int(pid), unix.SIGKILL))
	}
	for pid, p := range found {
		Check(t, shims.KillShim(pid, p.ID))
		pids = append(pids, uint32(pid)) //nolint:gosec // a pid
	}
	for _, pid := range pids { // a shim that ends still writes below /run
		Within(t, 10*time.Second, "the process is gone", func() bool {
			_, _ = unix.Wait4(int(pid), nil, unix.WNOHANG, nil) // an orphan of ours by now
			return !Alive(pid)
		})
	}
	// The containerd of this process is closed, but still has connections to the shims. When they end, it runs the cleanup program of each, which
	// writes an exit record, and then deletes the bundle.
	for _, p := range found {
		bundle := a.Dirs.Path("containerd", "io.containerd.runtime.v2.task", embed.Namespace, p.ID)
		Within(t, 10*time.Second, "the cleanup of the dead shim is done", func() bool {
			_, err := os.Lstat(bundle)
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	Check(t, a.PodCgroups.Cgroups.Remove(t.Context(), a.PodCgroups.Cgroups.AllPods()))
	for _, d := range []string{w.Run, w.Dir} {
		Check(t, trees.Unmount(d))
	}
	for _, name := range trees.Names(w.Run) {
		Check(t, os.RemoveAll(filepath.Join(w.Run, name)))
	}
}
