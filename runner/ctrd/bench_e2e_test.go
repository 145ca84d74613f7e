//go:build e2e

package ctrd

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

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// stamped returns a pod whose container first writes the uptime to the mounted directory.
func stamped(t testing.TB, name, dir string, hostNetwork bool) *manifests.Pod {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: %t
  containers:
  - name: c
    image: %s
    command: [sh, -c, 'read a b < /proc/uptime; echo $a > /out/%s; exec sleep 1000']
    volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: out, hostPath: {path: %s}}]
`, name, hostNetwork, testImage, name, dir)
	pods, err := decode.Pods("/x/"+name+".yaml", []byte(text), decode.Options{Source: "file"})
	check(t, err)
	return pods[0]
}

// startPod applies the actions of a worker for a new pod with one container.
func startPod(ctx context.Context, rt runner.Runtime, pod *manifests.Pod) error {
	for _, a := range []runner.Action{
		{Kind: runner.CreateSandbox, UID: "uid-" + pod.Object.Name},
		{Kind: runner.EnsureImage, Container: "c"},
		{Kind: runner.CreateContainer, Container: "c"},
		{Kind: runner.StartContainer, Container: "c"},
	} {
		if err := rt.Apply(ctx, pod.Key(), pod, a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// removePod applies the actions of a worker for a pod that is deleted.
func removePod(ctx context.Context, rt runner.Runtime, key manifests.Key) error {
	st, err := rt.Observe(ctx, key)
	if err != nil {
		return err
	}
	for _, c := range st.Containers {
		if err := rt.Apply(ctx, key, nil, runner.Action{Kind: runner.RemoveContainer, Container: c.Name, ContainerID: c.ID}); err != nil {
			return err
		}
	}
	return rt.Apply(ctx, key, nil, runner.Action{Kind: runner.RemoveSandbox})
}

func uptime(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	check(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts))
	return time.Duration(ts.Nano())
}

// stamp waits for the first write of a workload and returns its time, with a resolution of 10 ms.
func stamp(t testing.TB, path string) time.Duration {
	t.Helper()
	var v float64
	within(t, 30*time.Second, path+" is written", func() bool {
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
func rawStart(ctx context.Context, r *Runtime, id, parent string, spec *specs.Spec) error {
	opts, err := typeurl.MarshalAny(&options.Options{BinaryName: r.cfg.OCIRuntime, Root: r.dirs.Path("runc")})
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
		rootfs, err = r.client.SnapshotService(r.cfg.Snapshotter).Prepare(ctx, id, parent,
			snapshots.WithLabels(map[string]string{record.LabelGCRoot: "x"}))
		return err
	})
	g.Go(func() error {
		_, err := r.client.ContainerService().Create(ctx, containers.Container{
			ID: id, Runtime: containers.RuntimeInfo{Name: r.cfg.ShimPath, Options: opts}, Spec: s, SnapshotKey: id, Snapshotter: r.cfg.Snapshotter,
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
	if _, err := r.client.TaskService().Create(ctx, req); err != nil {
		return err
	}
	_, err = r.client.TaskService().Start(ctx, &tasksapi.StartRequest{ContainerID: id})
	return err
}

// TestTheWayToTheFirstActIsShort compares a pod with the same container started by raw calls, alternately.
func TestTheWayToTheFirstActIsShort(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	out := filepath.Join(w.dir, "out")
	check(t, os.Mkdir(out, 0o777))
	ctx := a.ns(t.Context())
	var host, pod, raw []time.Duration
	for i := range 14 {
		h := stamped(t, fmt.Sprintf("host%d", i), out, true)
		began := uptime(t)
		check(t, startPod(ctx, a, h))
		host = append(host, stamp(t, filepath.Join(out, h.Object.Name))-began)

		p := stamped(t, fmt.Sprintf("pod%d", i), out, false)
		began = uptime(t)
		check(t, startPod(ctx, a, p))
		pod = append(pod, stamp(t, filepath.Join(out, p.Object.Name))-began)

		// The spec of the host-network pod under another id.
		like := a.index.OfPod(h.Key())[0]
		rec, err := a.client.ContainerService().Get(ctx, like.ID)
		check(t, err)
		var s specs.Spec
		check(t, typeurl.UnmarshalTo(rec.Spec, &s))
		id := record.NewID()
		s.Linux.CgroupsPath = filepath.Join(filepath.Dir(s.Linux.CgroupsPath), id)
		s.Annotations = nil
		img, err := a.images.Get(ctx, testImage)
		check(t, err)
		check(t, os.Remove(filepath.Join(out, h.Object.Name)))
		began = uptime(t)
		check(t, rawStart(ctx, a.Runtime, id, img.ChainID, &s))
		raw = append(raw, stamp(t, filepath.Join(out, h.Object.Name))-began)

		check(t, a.lifecycle.DeleteTask(ctx, &record.Container{ID: id}))
		check(t, a.client.ContainerService().Delete(ctx, id))
		check(t, a.client.SnapshotService(a.cfg.Snapshotter).Remove(ctx, id))
		check(t, removePod(ctx, a, h.Key()))
		check(t, removePod(ctx, a, p.Key()))
		a.idle(t)
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
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	for _, hostNetwork := range []bool{true, false} {
		var pods []*manifests.Pod
		for i := range 30 {
			pods = append(pods, stamped(t, fmt.Sprintf("at-once-%d-%t", i, hostNetwork), w.dir, hostNetwork))
		}
		var g errgroup.Group
		began, cpu := uptime(t), ownCPU(t)
		for _, p := range pods {
			g.Go(func() error { return startPod(t.Context(), a, p) })
		}
		check(t, g.Wait())
		var last time.Duration
		for _, p := range pods {
			last = max(last, stamp(t, filepath.Join(w.dir, p.Object.Name))-began)
		}
		cpu = ownCPU(t) - cpu
		start := time.Now()
		for _, p := range pods {
			g.Go(func() error { return removePod(t.Context(), a, p.Key()) })
		}
		check(t, g.Wait())
		gone := time.Since(start)
		a.idle(t)
		t.Logf("30 pods, host network %t: all run after %v (%v of our own processor time); all containers gone after %v, everything clean after %v",
			hostNetwork, last, cpu, gone, time.Since(start))
	}
	cpu := ownCPU(t)
	last := a.manyRaw(t, w.dir)
	t.Logf("30 containers by the raw calls, 4 at a time: all run after %v (%v)", last, ownCPU(t)-cpu)
}

// ownCPU returns the CPU time of this process.
func ownCPU(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	check(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// manyRaw starts 30 containers by raw calls and returns the time until all have written.
func (a *agent) manyRaw(t *testing.T, dir string) time.Duration {
	t.Helper()
	ctx := a.ns(t.Context())
	model := stamped(t, "model", dir, true)
	check(t, startPod(ctx, a, model))
	stamp(t, filepath.Join(dir, "model"))
	rec, err := a.client.ContainerService().Get(ctx, a.index.OfPod(model.Key())[0].ID)
	check(t, err)
	img, err := a.images.Get(ctx, testImage)
	check(t, err)
	var ids []string
	var g errgroup.Group
	g.SetLimit(4)
	began := uptime(t)
	for i := range 30 {
		id := record.NewID()
		ids = append(ids, id)
		var s specs.Spec
		check(t, typeurl.UnmarshalTo(rec.Spec, &s))
		s.Linux.CgroupsPath = filepath.Join(filepath.Dir(s.Linux.CgroupsPath), id)
		s.Annotations = nil
		s.Process.Args[2] = strings.ReplaceAll(s.Process.Args[2], "model", fmt.Sprintf("raw%d", i))
		g.Go(func() error { return rawStart(ctx, a.Runtime, id, img.ChainID, &s) })
	}
	check(t, g.Wait())
	var last time.Duration
	for i := range 30 {
		last = max(last, stamp(t, filepath.Join(dir, fmt.Sprintf("raw%d", i)))-began)
	}
	for _, id := range ids {
		check(t, a.lifecycle.DeleteTask(ctx, &record.Container{ID: id}))
		check(t, a.client.ContainerService().Delete(ctx, id))
		check(t, a.client.SnapshotService(a.cfg.Snapshotter).Remove(ctx, id))
	}
	check(t, removePod(ctx, a, model.Key()))
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
		check(t, unix.Unmount(unified, unix.MNT_DETACH))
		defer func() { check(t, unix.Mount("cgroup2", unified, "cgroup2", 0, "")) }()
	}
	w := newWorld(t)
	w.runtime = crun
	a := w.open(t)
	defer a.end(t)
	for _, hostNetwork := range []bool{true, false} {
		pod := stamped(t, fmt.Sprintf("crun-%t", hostNetwork), w.dir, hostNetwork)
		check(t, startPod(t.Context(), a, pod))
		stamp(t, filepath.Join(w.dir, pod.Object.Name))
		a.pidOf(t, pod.Key())
		check(t, removePod(t.Context(), a, pod.Key()))
	}
}
