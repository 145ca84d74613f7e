package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/network"
)

// floor starts containers with raw client calls only: the lower bound for any agent.
type floor struct {
	client *client.Client
	image  *image.Image
	net    *network.Network
	dir    string
	shim   string
	stamps string
	n      atomic.Int64
}

func newFloor(ctx context.Context, b *bench) (*floor, func(), error) {
	quiet := slog.New(slog.DiscardHandler)
	dir := filepath.Join(b.work, "floor")
	c, stop, err := embed.Start(ctx, embed.Config{Root: filepath.Join(dir, "root"), State: filepath.Join(b.state, "floor"), Log: quiet})
	if err != nil {
		return nil, nil, err
	}
	done := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = stop(ctx)
	}
	store := imagestore.New(c, imagestore.Config{Snapshotter: "overlayfs", PreloadDirs: []string{b.images}, Log: quiet})
	loaded := make(chan error, 1)
	pctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = store.Preload.Run(pctx, func(err error) { loaded <- err }) }()
	if err := <-loaded; err != nil {
		done()
		return nil, nil, err
	}
	img, err := store.Ensure(ctx, imageName, corev1.PullIfNotPresent)
	if err != nil {
		done()
		return nil, nil, err
	}
	net := network.New(network.Config{
		ConfDir: filepath.Join(dir, "none"), OwnConfDir: filepath.Join(dir, "cni"), BinDirs: []string{filepath.Join(b.bin, "cni")},
		DataDir: filepath.Join(dir, "ipam"), PodCIDR: "10.212.0.0/24", Bridge: "mpfloor0", Log: quiet,
	})
	if err := net.Init(ctx); err != nil {
		done()
		return nil, nil, err
	}
	stopAll := func() {
		_ = net.Destroy(context.WithoutCancel(ctx))
		done()
	}
	return &floor{client: c, image: img, net: net, dir: dir, shim: filepath.Join(b.bin, "containerd-shim-monopod-v2"), stamps: b.stamps}, stopAll, nil
}

// run starts one container and returns the time from the first call to its first act.
func (f *floor) run(ctx context.Context, pod bool) (time.Duration, error) {
	ctx = namespaces.WithNamespace(ctx, "monopod")
	id := "floor-" + strconv.FormatInt(f.n.Add(1), 10)
	ns := filepath.Join(f.dir, "ns", id)
	t0 := monotonic()
	network := make(chan error, 1)
	if pod {
		if err := pin(ns); err != nil {
			return 0, err
		}
		go func() { network <- f.connect(ctx, id, ns) }()
	} else {
		network <- nil
	}
	err := f.create(ctx, id, ns, pod)
	if err = errors.Join(err, <-network); err != nil {
		return 0, errors.Join(err, f.remove(ctx, id, ns, pod))
	}
	if _, err := f.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id}); err != nil {
		return 0, errors.Join(err, f.remove(ctx, id, ns, pod))
	}
	at, err := stamp(f.stamps, id)
	return at - t0, errors.Join(err, f.remove(ctx, id, ns, pod))
}

func pin(dir string) error {
	return linuxns.Pin(dir, linuxns.Set{Net: true, IPC: true, UTS: true, Hostname: "floor"})
}

func (f *floor) connect(ctx context.Context, id, ns string) error {
	_, err := f.net.Setup(ctx, network.Pod{SandboxID: id, NetNS: filepath.Join(ns, "net"), Namespace: "default", Name: id, UID: id})
	return err
}

// create makes record and snapshot side by side, then the task.
func (f *floor) create(ctx context.Context, id, ns string, pod bool) error {
	type prepared struct {
		mounts []mount.Mount
		err    error
	}
	snapshot := make(chan prepared, 1)
	go func() {
		m, err := f.client.SnapshotService("overlayfs").Prepare(ctx, id, f.image.ChainID, snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "true"}))
		snapshot <- prepared{m, err}
	}()
	err := f.record(ctx, id, ns, pod)
	p := <-snapshot
	if err = errors.Join(err, p.err); err != nil {
		return err
	}
	opts, err := typeurl.MarshalAnyToProto(&options.Options{})
	if err != nil {
		return err
	}
	_, err = f.client.TaskService().Create(ctx, &tasks.CreateTaskRequest{ContainerID: id, Rootfs: wire(p.mounts), Options: opts})
	return err
}

func wire(ms []mount.Mount) []*apitypes.Mount {
	var out []*apitypes.Mount
	for _, m := range ms {
		out = append(out, &apitypes.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return out
}

func (f *floor) record(ctx context.Context, id, ns string, pod bool) error {
	args := append(append([]string{}, f.image.Config.Entrypoint...), "/out", id)
	with := []oci.SpecOpts{
		oci.WithProcessArgs(args...), oci.WithEnv(f.image.Config.Env), oci.WithCgroup("/monopod-bench/" + id),
		oci.WithMounts([]specs.Mount{{Destination: "/out", Type: "bind", Source: f.stamps, Options: []string{"rbind", "rw"}}}),
	}
	if pod {
		for _, kind := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
			with = append(with, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: kind, Path: filepath.Join(ns, short(kind))}))
		}
	} else {
		with = append(with, oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostNamespace(specs.UTSNamespace))
	}
	c := containers.Container{ID: id, Image: f.image.Name, Snapshotter: "overlayfs", SnapshotKey: id, Runtime: containers.RuntimeInfo{Name: f.shim}}
	s, err := oci.GenerateSpec(ctx, nil, &c, with...)
	if err != nil {
		return err
	}
	s.Root.Path = "rootfs"
	s.Version = "1.0.2"
	if c.Spec, err = typeurl.MarshalAny(s); err != nil {
		return err
	}
	_, err = f.client.ContainerService().Create(ctx, c)
	return err
}

func short(kind specs.LinuxNamespaceType) string {
	if kind == specs.NetworkNamespace {
		return "net"
	}
	return string(kind)
}

func (f *floor) remove(ctx context.Context, id, ns string, pod bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	ts := f.client.TaskService()
	_, _ = ts.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: 9})
	_, _ = ts.Wait(ctx, &tasks.WaitRequest{ContainerID: id})
	_, err1 := ts.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	err2 := f.client.ContainerService().Delete(ctx, id)
	err3 := f.client.SnapshotService("overlayfs").Remove(ctx, id)
	var err4, err5 error
	if pod {
		err4 = f.net.Teardown(ctx, network.Pod{SandboxID: id, NetNS: filepath.Join(ns, "net"), Namespace: "default", Name: id, UID: id})
		err5 = linuxns.Unpin(ns)
	}
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	return nil
}
