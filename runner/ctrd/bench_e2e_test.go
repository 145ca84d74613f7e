//go:build e2e

package ctrd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

func uptime(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	ctrdtest.Check(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts))
	return time.Duration(ts.Nano())
}

// stamp waits for the first write of a workload and returns its time, with a resolution of 10 ms.
func stamp(t testing.TB, path string) time.Duration {
	t.Helper()
	var v float64
	ctrdtest.Within(t, 30*time.Second, path+" is written", func() bool {
		b, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		v, err = strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
		return err == nil
	})
	return time.Duration(v * float64(time.Second))
}

// rawStart creates and starts the same container with the minimum of calls: record and snapshot in parallel, without logs and
// files.
func rawStart(ctx context.Context, r *ctrdtest.Agent, id, parent string, spec *specs.Spec) error {
	opts, err := typeurl.MarshalAny(&options.Options{BinaryName: r.Config.OCIRuntime, Root: r.Dirs.Path("runc")})
	if err != nil {
		return err
	}
	s, err := typeurl.MarshalAny(spec)
	if err != nil {
		return err
	}
	var rootfs []mount.Mount
	var g errgroup.Group
	g.Go(func() (err error) {
		rootfs, err = r.Client.SnapshotService(r.Config.Snapshotter).Prepare(ctx, id, parent,
			snapshots.WithLabels(map[string]string{record.LabelGCRoot: "x"}))
		return err
	})
	g.Go(func() error {
		_, err := r.Client.ContainerService().Create(ctx, containers.Container{
			ID: id, Runtime: containers.RuntimeInfo{Name: r.Config.ShimPath, Options: opts}, Spec: s, SnapshotKey: id, Snapshotter: r.Config.Snapshotter,
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	req := &tasksapi.CreateTaskRequest{ContainerID: id}
	for _, m := range rootfs {
		req.Rootfs = append(req.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	if _, err := r.Client.TaskService().Create(ctx, req); err != nil {
		return err
	}
	_, err = r.Client.TaskService().Start(ctx, &tasksapi.StartRequest{ContainerID: id})
	return err
}

// TestTheWayToTheFirstActIsShort compares a pod with the same container started by raw calls, alternately.
func TestTheWayToTheFirstActIsShort(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	out := filepath.Join(w.Dir, "out")
	ctrdtest.Check(t, os.Mkdir(out, 0o777))
	ctx := a.NS(t.Context())
	var host, pod, raw []time.Duration
	for i := range 14 {
		h := ctrdtest.Stamped(t, fmt.Sprintf("host%d", i), out, true)
		began := uptime(t)
		ctrdtest.Check(t, ctrdtest.StartPod(ctx, a, h))
		host = append(host, stamp(t, filepath.Join(out, h.Object.Name))-began)

		p := ctrdtest.Stamped(t, fmt.Sprintf("pod%d", i), out, false)
		began = uptime(t)
		ctrdtest.Check(t, ctrdtest.StartPod(ctx, a, p))
		pod = append(pod, stamp(t, filepath.Join(out, p.Object.Name))-began)

		// The spec of the host-network pod under another id.
		like := a.Index.OfPod(h.Key())[0]
		rec, err := a.Client.ContainerService().Get(ctx, like.ID)
		ctrdtest.Check(t, err)
		var s specs.Spec
		ctrdtest.Check(t, typeurl.UnmarshalTo(rec.Spec, &s))
		id := record.NewID()
		s.Linux.CgroupsPath = filepath.Join(filepath.Dir(s.Linux.CgroupsPath), id)
		s.Annotations = nil
		img, err := a.ImageStore.Get(ctx, ctrdtest.TestImage)
		ctrdtest.Check(t, err)
		ctrdtest.Check(t, os.Remove(filepath.Join(out, h.Object.Name)))
		began = uptime(t)
		ctrdtest.Check(t, rawStart(ctx, a, id, img.ChainID, &s))
		raw = append(raw, stamp(t, filepath.Join(out, h.Object.Name))-began)

		ctrdtest.Check(t, a.Lifecycle.DeleteTask(ctx, &record.Container{ID: id}))
		ctrdtest.Check(t, a.Client.ContainerService().Delete(ctx, id))
		ctrdtest.Check(t, a.Client.SnapshotService(a.Config.Snapshotter).Remove(ctx, id))
		ctrdtest.Check(t, ctrdtest.RemovePod(ctx, a, h.Key()))
		ctrdtest.Check(t, ctrdtest.RemovePod(ctx, a, p.Key()))
		a.Idle(t)
	}
	mr, mh, mp := median(raw), median(host), median(pod)
	t.Logf("raw %v, host network %v (%.2fx), pod network %v (%.2fx)", mr, mh, mh.Seconds()/mr.Seconds(), mp, mp.Seconds()/mr.Seconds())
	if mh > 2*mr+100*time.Millisecond { // under load, with the race detector; make bench knows better
		t.Errorf("host network takes %v, raw calls %v", mh, mr)
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d[2:]))
	return d[len(d)/2]
}

// TestManyPodsAtOnce starts 30 pods in parallel, as the workers do.
func TestManyPodsAtOnce(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	for _, hostNetwork := range []bool{true, false} {
		var pods []*manifests.Pod
		for i := range 30 {
			pods = append(pods, ctrdtest.Stamped(t, fmt.Sprintf("at-once-%d-%t", i, hostNetwork), w.Dir, hostNetwork))
		}
		var g errgroup.Group
		began, cpu := uptime(t), ownCPU(t)
		for _, p := range pods {
			g.Go(func() error { return ctrdtest.StartPod(t.Context(), a, p) })
		}
		ctrdtest.Check(t, g.Wait())
		var last time.Duration
		for _, p := range pods {
			last = max(last, stamp(t, filepath.Join(w.Dir, p.Object.Name))-began)
		}
		cpu = ownCPU(t) - cpu
		start := time.Now()
		for _, p := range pods {
			g.Go(func() error { return ctrdtest.RemovePod(t.Context(), a, p.Key()) })
		}
		ctrdtest.Check(t, g.Wait())
		gone := time.Since(start)
		a.Idle(t)
		t.Logf("30 pods, host network %t: all run after %v (%v of our own processor time); all containers gone after %v, everything clean after %v",
			hostNetwork, last, cpu, gone, time.Since(start))
	}
	cpu := ownCPU(t)
	last := manyRaw(t, a, w.Dir)
	t.Logf("30 containers by the raw calls, 4 at a time: all run after %v (%v)", last, ownCPU(t)-cpu)
}

// ownCPU returns the CPU time of this process.
func ownCPU(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	ctrdtest.Check(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// manyRaw starts 30 containers by raw calls and returns the time until all have written.
func manyRaw(t *testing.T, a *ctrdtest.Agent, dir string) time.Duration {
	t.Helper()
	ctx := a.NS(t.Context())
	model := ctrdtest.Stamped(t, "model", dir, true)
	ctrdtest.Check(t, ctrdtest.StartPod(ctx, a, model))
	stamp(t, filepath.Join(dir, "model"))
	rec, err := a.Client.ContainerService().Get(ctx, a.Index.OfPod(model.Key())[0].ID)
	ctrdtest.Check(t, err)
	img, err := a.ImageStore.Get(ctx, ctrdtest.TestImage)
	ctrdtest.Check(t, err)
	var ids []string
	var g errgroup.Group
	g.SetLimit(4)
	began := uptime(t)
	for i := range 30 {
		id := record.NewID()
		ids = append(ids, id)
		var s specs.Spec
		ctrdtest.Check(t, typeurl.UnmarshalTo(rec.Spec, &s))
		s.Linux.CgroupsPath = filepath.Join(filepath.Dir(s.Linux.CgroupsPath), id)
		s.Annotations = nil
		s.Process.Args[2] = strings.ReplaceAll(s.Process.Args[2], "model", fmt.Sprintf("raw%d", i))
		g.Go(func() error { return rawStart(ctx, a, id, img.ChainID, &s) })
	}
	ctrdtest.Check(t, g.Wait())
	var last time.Duration
	for i := range 30 {
		last = max(last, stamp(t, filepath.Join(dir, fmt.Sprintf("raw%d", i)))-began)
	}
	for _, id := range ids {
		ctrdtest.Check(t, a.Lifecycle.DeleteTask(ctx, &record.Container{ID: id}))
		ctrdtest.Check(t, a.Client.ContainerService().Delete(ctx, id))
		ctrdtest.Check(t, a.Client.SnapshotService(a.Config.Snapshotter).Remove(ctx, id))
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(ctx, a, model.Key()))
	return last
}

// TestCrunRunsPods uses another OCI runtime. crun refuses hybrid cgroups: the unified hierarchy is taken away from
// the mount namespace that the tests have for themselves.
func TestCrunRunsPods(t *testing.T) {
	crun, err := exec.LookPath("crun")
	if err != nil {
		t.Fatal(err)
	}
	const unified = "/sys/fs/cgroup/unified"
	if trees.IsMountPoint(unified) {
		ctrdtest.Check(t, unix.Unmount(unified, unix.MNT_DETACH))
		defer func() { ctrdtest.Check(t, unix.Mount("cgroup2", unified, "cgroup2", 0, "")) }()
	}
	w := ctrdtest.NewWorld(t)
	w.Runtime = crun
	a := w.Open(t)
	defer a.End(t)
	for _, hostNetwork := range []bool{true, false} {
		pod := ctrdtest.Stamped(t, fmt.Sprintf("crun-%t", hostNetwork), w.Dir, hostNetwork)
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		stamp(t, filepath.Join(w.Dir, pod.Object.Name))
		a.PID(t, pod.Key())
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	}
}
