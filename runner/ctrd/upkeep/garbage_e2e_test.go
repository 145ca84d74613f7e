//go:build e2e

package upkeep_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"monopod/e2e/ctrdtest"
	"monopod/runner"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/podlogs"
)

func TestWhatRestartsLeaveIsCollected(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	ended := false
	defer func() {
		if !ended {
			a.End(t)
		}
	}()
	pod := ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %s, command: [sh, -c, "echo hello; head -c 1000000 /dev/zero >/f; exit 1"]}]
`, ctrdtest.TestImage))
	do := func(action runner.Action) error { return a.Apply(t.Context(), pod.Key(), pod, action) }
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	dir := a.Dirs.ContainerLogDir(pod.Key(), "uid-crash", "c")
	for n := range 4 {
		c := a.Exit(t, pod.Key())
		a.Finishes(t, c, do)
		if n == 3 {
			break
		}
		ctrdtest.Check(t, do(runner.Action{Kind: runner.CreateContainer, Container: "c", RestartCount: n + 1, Last: c.Exit}))
		ctrdtest.Check(t, do(runner.Action{Kind: runner.StartContainer, Container: "c"}))
		ctrdtest.Check(t, do(runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: c.ID}))
	}
	if got := dirtest.Tree(t, dir, podlogs.OwnerName); got != "2.log 3.log" {
		t.Errorf("logs after four runs: %s", got)
	}
	last := a.Exit(t, pod.Key())
	sn := a.Client.SnapshotService(a.Config.Snapshotter)
	if _, err := sn.Stat(a.NS(t.Context()), last.ID); err != nil {
		t.Errorf("layer of the last one: %v", err)
	}
	n, err := a.Garbage.ReclaimContainers(t.Context())
	if err != nil || n < 1000000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := sn.Stat(a.NS(t.Context()), last.ID); err == nil {
		t.Error("the layer is still there")
	}
	if got := dirtest.Tree(t, dir, podlogs.OwnerName); got != "3.log" {
		t.Errorf("logs when the disk is full: %s", got)
	}
	if c := a.Exit(t, pod.Key()); c.ID != last.ID || !c.Recorded || c.Exit.ExitCode != 1 {
		t.Errorf("its status is %+v", c)
	}
	if n, err := a.Garbage.ReclaimContainers(t.Context()); err != nil || n != 0 {
		t.Errorf("again: %d bytes, %v", n, err)
	}
	// restarts still work
	ctrdtest.Check(t, do(runner.Action{Kind: runner.CreateContainer, Container: "c", RestartCount: 4, Last: last.Exit}))
	ctrdtest.Check(t, do(runner.Action{Kind: runner.StartContainer, Container: "c"}))
	ctrdtest.Check(t, do(runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: last.ID}))
	a.Finishes(t, a.Exit(t, pod.Key()), do)

	// a power cut has removed the records but not the files
	left := filepath.Join(a.Config.PodLogsDir, "default_gone_uid-gone")
	ctrdtest.Check(t, a.PodLogs.OwnLogs(filepath.Join(left, "c")))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(left, "c", "0.log"), nil, 0o600))
	links := a.Config.ContainerLogsDir
	ctrdtest.Check(t, os.MkdirAll(links, 0o755))
	ctrdtest.Check(t, os.Symlink(filepath.Join(left, "c", "0.log"), filepath.Join(links, "gone_default_c-123.log")))
	before := dirtest.Tree(t, links, podlogs.OwnerName)
	a.Stop(t)
	a = w.Open(t)
	if _, err := os.Stat(left); err == nil {
		t.Error("logs of a pod that nobody knows are still there")
	}
	if got := dirtest.Tree(t, links, podlogs.OwnerName); got == before || len(got) == 0 {
		t.Errorf("links %q, before %q", got, before)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	a.Idle(t)
	if got := dirtest.Tree(t, a.Config.PodLogsDir, podlogs.OwnerName); got != "" {
		t.Errorf("left: %s", got)
	}
	ended = true
	a.End(t)
}
