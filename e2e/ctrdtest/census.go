//go:build e2e

package ctrdtest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	corelease "github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"

	"monopod/runner/ctrd/shims"
	"monopod/runner/ctrd/trees"
)

// Census counts everything that could leak.
func (a *Agent) Census(t testing.TB) map[string]int {
	t.Helper()
	Within(t, 10*time.Second, "ended shims are reaped", func() bool { return len(shims.ZombieShims()) == 0 })
	ctx := a.NS(context.Background())
	tasks, err := a.Client.TaskService().List(ctx, &tasksapi.ListTasksRequest{})
	Check(t, err)
	ctrs, err := a.Client.ContainerService().List(ctx)
	Check(t, err)
	sbs, err := a.Client.SandboxStore().List(ctx)
	Check(t, err)
	leases, err := a.Client.LeasesService().List(ctx)
	Check(t, err)
	// Leases with an expiration are removed by containerd.
	leases = slices.DeleteFunc(leases, func(l corelease.Lease) bool { return l.Labels["containerd.io/gc.expire"] != "" })
	n := map[string]int{
		"tasks": len(tasks.Tasks), "containers": len(ctrs), "sandboxes": len(sbs), "leases": len(leases),
		"goroutines": runtime.NumGoroutine(),
		"fds":        len(trees.Names("/proc/self/fd")),
		"links":      countLinks(t),
		"rules":      countRules(t),
		"addresses":  countAddresses(a.Config.Network.DataDir),
		"shims":      countShims(a.Config.StateDirectory),
	}
	Check(t, a.Client.SnapshotService(a.Config.Snapshotter).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		if i.Kind != snapshots.KindView { // a look into an image, kept by a lease with an end
			n["snapshots"]++
		}
		return nil
	}))
	for _, d := range []string{a.Config.RootDirectory, a.Config.StateDirectory} {
		m, err := mountinfo.GetMounts(mountinfo.PrefixFilter(d))
		Check(t, err)
		n["mounts"] += len(m)
	}
	for _, d := range []string{"ns", "shm", "logs", "exits", "runc/monopod"} {
		n[d] = len(trees.Names(a.Dirs.Path(d)))
	}
	n["pod dirs"], n["log dirs"], n["log links"] = len(trees.Names(a.Dirs.PodsDir())), len(trees.Names(a.Config.PodLogsDir)), len(trees.Names(a.Config.ContainerLogsDir))
	n["cgroups"] = len(a.PodCgroups.Cgroups.Pods())
	return n
}

// SameCensus waits until all counts are as before: sockets and goroutines close with a delay.
func (a *Agent) SameCensus(t testing.TB, before map[string]int) {
	t.Helper()
	var diff string
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		now := a.Census(t)
		for k := range now {
			if _, ok := before[k]; !ok {
				delete(now, k)
			}
		}
		// Descriptors and goroutines of the first count may be gone by now; an increase is a leak.
		for _, k := range []string{"fds", "goroutines"} {
			if now[k] < before[k] {
				now[k] = before[k]
			}
		}
		if diff = cmp.Diff(before, now); diff == "" {
			return
		}
	}
	t.Errorf("left behind (-before +after):\n%s", diff)
}

func countLinks(t testing.TB) int {
	t.Helper()
	l, err := netlink.LinkList()
	Check(t, err)
	return len(l)
}

func countRules(t testing.TB) int {
	t.Helper()
	n := 0
	for _, args := range [][]string{{"iptables", "-t", "nat", "-S"}, {"iptables", "-S"}, {"nft", "-s", "list", "ruleset"}} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		Check(t, err)
		n += strings.Count(string(out), "\n")
	}
	return n
}

// countAddresses counts host-local's files of addresses and libcni's cached results.
func countAddresses(dir string) int {
	n := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		base := filepath.Base(path)
		if err == nil && !d.IsDir() && base != "lock" && !strings.HasPrefix(base, "last_reserved") {
			n++
		}
		return nil
	})
	return n
}

// countShims counts shim processes of an instance.
func countShims(state string) int {
	n := 0
	for _, pid := range trees.Names("/proc") {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%s/cmdline", pid))
		if err != nil || !strings.Contains(string(cmdline), "containerd-shim-monopod") {
			continue
		}
		if cwd, err := os.Readlink("/proc/" + pid + "/cwd"); err == nil && strings.HasPrefix(cwd, state+"/") {
			n++
		}
	}
	return n
}
