//go:build e2e

package ctrd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"monopod/runner"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/podlogs"
)

// finishes records that a container has ended, as a worker does.
func (a *agent) finishes(t *testing.T, c *runner.Container, again func(runner.Action) error) {
	t.Helper()
	check(t, again(runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: c.ID, Exit: c.Exit}))
}

func TestWhatRestartsLeaveIsCollected(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	ended := false
	defer func() {
		if !ended {
			a.end(t)
		}
	}()
	pod := load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %s, command: [sh, -c, "echo hello; head -c 1000000 /dev/zero >/f; exit 1"]}]
`, testImage))
	do := func(action runner.Action) error { return a.Apply(t.Context(), pod.Key(), pod, action) }
	check(t, startPod(t.Context(), a, pod))
	dir := a.dirs.ContainerLogDir(pod.Key(), "uid-crash", "c")
	for n := range 4 {
		c := a.exit(t, pod.Key())
		a.finishes(t, c, do)
		if n == 3 {
			break
		}
		check(t, do(runner.Action{Kind: runner.CreateContainer, Container: "c", RestartCount: n + 1, Last: c.Exit}))
		check(t, do(runner.Action{Kind: runner.StartContainer, Container: "c"}))
		check(t, do(runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: c.ID}))
	}
	if got := dirtest.Tree(t, dir, podlogs.OwnerName); got != "2.log 3.log" {
		t.Errorf("logs after four runs: %s", got)
	}
	last := a.exit(t, pod.Key())
	sn := a.client.SnapshotService(a.cfg.Snapshotter)
	if _, err := sn.Stat(a.ns(t.Context()), last.ID); err != nil {
		t.Errorf("layer of the last one: %v", err)
	}
	n, err := a.garbage.ReclaimContainers(t.Context())
	if err != nil || n < 1000000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := sn.Stat(a.ns(t.Context()), last.ID); err == nil {
		t.Error("the layer is still there")
	}
	if got := dirtest.Tree(t, dir, podlogs.OwnerName); got != "3.log" {
		t.Errorf("logs when the disk is full: %s", got)
	}
	if c := a.exit(t, pod.Key()); c.ID != last.ID || !c.Recorded || c.Exit.ExitCode != 1 {
		t.Errorf("its status is %+v", c)
	}
	if n, err := a.garbage.ReclaimContainers(t.Context()); err != nil || n != 0 {
		t.Errorf("again: %d bytes, %v", n, err)
	}
	// restarts still work
	check(t, do(runner.Action{Kind: runner.CreateContainer, Container: "c", RestartCount: 4, Last: last.Exit}))
	check(t, do(runner.Action{Kind: runner.StartContainer, Container: "c"}))
	check(t, do(runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: last.ID}))
	a.finishes(t, a.exit(t, pod.Key()), do)

	// a power cut has removed the records but not the files
	left := filepath.Join(a.cfg.PodLogsDir, "default_gone_uid-gone")
	check(t, a.podLogs.OwnLogs(filepath.Join(left, "c")))
	check(t, os.WriteFile(filepath.Join(left, "c", "0.log"), nil, 0o600))
	links := a.cfg.ContainerLogsDir
	check(t, os.MkdirAll(links, 0o755))
	check(t, os.Symlink(filepath.Join(left, "c", "0.log"), filepath.Join(links, "gone_default_c-123.log")))
	before := dirtest.Tree(t, links, podlogs.OwnerName)
	a.stop(t)
	a = w.open(t)
	if _, err := os.Stat(left); err == nil {
		t.Error("logs of a pod that nobody knows are still there")
	}
	if got := dirtest.Tree(t, links, podlogs.OwnerName); got == before || len(got) == 0 {
		t.Errorf("links %q, before %q", got, before)
	}
	check(t, removePod(t.Context(), a, pod.Key()))
	a.idle(t)
	if got := dirtest.Tree(t, a.cfg.PodLogsDir, podlogs.OwnerName); got != "" {
		t.Errorf("left: %s", got)
	}
	ended = true
	a.end(t)
}
