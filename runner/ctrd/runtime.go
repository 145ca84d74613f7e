package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sync/errgroup"

	"monopod/internal/boottime"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/imageuse"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/machine"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/notice"
	"monopod/runner/ctrd/podlogs"
	"monopod/runner/ctrd/process"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/remote"
	"monopod/runner/ctrd/reserve"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/shims"
	"monopod/runner/ctrd/taskwatch"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/upkeep"
	"monopod/runner/ctrd/usage"
	"monopod/runner/ctrd/volume"
	"monopod/runner/spec"
)

var _ runner.Runtime = (*Runtime)(nil)

// Runtime runs pods on containerd: it opens the parts, passes the calls of Run and Apply on to them, and combines what they
// observe. Its methods may be called concurrently, but not for the same pod.
type Runtime struct {
	cfg    Config
	log    *slog.Logger
	dirs   layout.Dirs
	bootID string
	watch  *taskwatch.Watchers
	// reserve is disk space that is freed when the disk is full.
	reserve *reserve.Reserve
	notices *notice.Notices
	logs    *logs.Collector

	client     *client.Client
	containerd *containerd
	follower   *follower

	records      *record.Store
	index        *record.Index
	images       *imagestore.Store
	imageUse     *imageuse.Images
	net          *network.Network
	network      *sandbox.Network
	podLogs      *podlogs.Logs
	podCgroups   *cgroup.Pods
	claimVolumes *volume.Storage
	secrets      *volume.Secrets
	sandboxes    *sandbox.Manager
	planner      *container.Planner
	creator      *container.Creator
	lifecycle    *container.Lifecycle
	processes    *process.Processes
	meter        *usage.Meter
	removal      *upkeep.Remover
	janitor      *upkeep.Janitor
	garbage      *upkeep.Garbage

	close closers
}

// Open re-attaches the logs, starts or connects to containerd and cleans up records and directories. The caller holds a lock on
// both directories. The order matters: logs come first, because the output written meanwhile is in FIFOs that live no longer than
// the shims; the subscription comes before the records are read, so that no exit is missed. Until Run is called, events wait in
// the subscription and teardown does not proceed.
func Open(ctx context.Context, cfg Config) (_ *Runtime, err error) {
	cfg = cfg.withDefaults()
	r := &Runtime{cfg: cfg, log: cfg.Log, index: record.NewIndex(), watch: taskwatch.New()}
	defer func() {
		if err != nil {
			r.reserve.Spend(err) // the caller retries
			err = errors.Join(err, r.Close())
		}
	}()
	if err := r.cfg.makeDirs(); err != nil {
		return nil, err
	}
	r.dirs = r.cfg.dirs()
	if cfg.Endpoint == "" { // the paths of an external containerd are unknown
		r.reserve = reserve.New(r.cfg.RootDirectory, r.log)
	}
	if r.bootID, err = boottime.ID(); err != nil {
		return nil, err
	}
	r.notices = &notice.Notices{Index: r.index, Recorder: cfg.Events, NodeName: cfg.NodeName, Watch: r.watch, Log: r.log}
	mounter := remote.NewMounter(func() { r.watch.Notify(manifests.Key{}) })
	r.close.add(func(context.Context) error { mounter.Close(); return nil })
	r.claimVolumes = &volume.Storage{Dirs: r.dirs, Index: r.index, Remote: mounter, NodeName: cfg.NodeName, Log: r.log}
	r.claimVolumes.OpenBook()
	m, err := r.openMachine()
	if err != nil {
		return nil, err
	}
	r.openLogs()
	if cfg.Endpoint == "" {
		r.containerd, err = startContainerd(ctx, &r.cfg, r.bootID, r.notices.DatabaseNotice)
	} else {
		r.containerd, err = dialContainerd(ctx, &r.cfg, r.dirs.Path("tmpmounts"))
	}
	if err != nil {
		return nil, err
	}
	r.close.add(r.containerd.stop)
	r.client, r.cfg.Snapshotter = r.containerd.client, r.containerd.snapshotter
	if err := r.openImages(); err != nil {
		return nil, err
	}
	cfg.Network.Notice = r.notices.NetworkNotice
	r.net = network.New(cfg.Network)
	if err := r.net.Init(ctx); err != nil {
		// Running pods are not affected, and pods on the host network need none.
		r.log.Error("pod network unavailable until fixed", "err", err)
	}
	r.assemble(m)
	r.follower.events = r.follower.subscribe(ctx)
	r.close.add(func(context.Context) error { r.follower.events.cancel(); return nil })
	r.close.add(func(context.Context) error { r.processes.Commands.Wait(); return nil })
	r.close.add(func(ctx context.Context) error { r.network.Adds.Wait(ctx); return nil })
	if err := r.records.Load(r.ns(ctx), r.removal.Teardown.Has); err != nil {
		return nil, err
	}
	r.processes.Commands.Left = trees.Names(r.dirs.Path("exec"))
	r.janitor.ReattachLogs()
	r.network.AdoptNetworks()
	r.sandboxes.EmptyAllEvicted()
	return r, r.janitor.CleanStart(r.ns(ctx))
}

// host holds facts about the machine: for specs, cgroups and CPUs.
type host struct {
	host    spec.Host
	cgroups cgroup.Tree
	cpus    *cgroup.CPUs
}

// openMachine reads these facts, and sets the limits of all pods together.
func (r *Runtime) openMachine() (m host, err error) {
	if m.host, err = machine.Facts(spec.Cgroups{Driver: r.cfg.CgroupDriver, Root: r.cfg.CgroupParent}, r.cfg.RootDirectory); err != nil {
		return m, err
	}
	m.host.NodeName, m.host.Enforce = r.cfg.NodeName, r.cfg.Enforce
	if m.cgroups, err = cgroup.Find(m.host.Cgroups); err != nil {
		return m, err
	}
	if err := m.cgroups.LimitPods(r.cfg.PodsLimits, m.host); err != nil {
		r.log.Error("cannot limit all pods together", "err", err)
	}
	if m.cgroups.Slices != nil {
		r.close.add(func(context.Context) error { m.cgroups.Slices.Close(); return nil })
	}
	if m.cpus, err = cgroup.ReadCPUs("/sys/devices/system/cpu", r.cfg.ReservedCPUs); err != nil {
		return m, fmt.Errorf("processors: %w", err)
	}
	return m, nil
}

// openLogs resumes reading the output of running containers.
func (r *Runtime) openLogs() {
	r.podLogs = &podlogs.Logs{Dirs: r.dirs, Index: r.index}
	r.logs = logs.NewCollector(logs.Config{
		Dir: r.dirs.Path("logs"), Boot: r.bootID, Limits: r.cfg.Logs, PodDirs: r.podLogs.OwnLogDirs, Notice: r.notices.LogNotice, Log: r.log,
	})
	r.close.add(func(context.Context) error { return r.logs.Close() })
	if err := r.logs.Recover(); err != nil {
		r.log.Warn("cannot resume reading the output of some containers", "err", err)
	}
}

// openImages opens the image store.
func (r *Runtime) openImages() (err error) {
	news, cfg := imageuse.NewNews(), r.cfg.Image
	cfg.Snapshotter, cfg.OnNew = r.cfg.Snapshotter, news.Tell
	if cfg.OnChange == nil {
		cfg.OnChange = func() { r.watch.Notify(manifests.Key{}) }
	}
	if cfg.Doubt, err = r.openShutdown(); err != nil {
		return err
	}
	cfg.OnDamage, cfg.OnFull, cfg.Disk.Dir = r.notices.DamageNotice, news.Wants, r.containerd.images
	if r.cfg.Endpoint == "" {
		cfg.ContentDir = r.dirs.ContentDir()
	}
	r.images = imagestore.New(r.client, cfg)
	r.imageUse = &imageuse.Images{
		Store: r.images, Client: r.client, Index: r.index, Owner: r.cfg.RootDirectory, Shared: r.cfg.Endpoint != "", Dir: r.containerd.images,
		Reserve: r.reserve, WithNamespace: r.ns, News: news, Log: r.log,
	}
	return nil
}

// withDefaults fills in zero fields.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	for _, f := range []struct{ to, from *string }{
		{&c.RootDirectory, &d.RootDirectory},
		{&c.StateDirectory, &d.StateDirectory},
		{&c.PodLogsDir, &d.PodLogsDir},
		{&c.Namespace, &d.Namespace},
		{&c.OCIRuntime, &d.OCIRuntime},
		{&c.ShimPath, &d.ShimPath},
		{&c.CgroupParent, &d.CgroupParent},
		{&c.ClusterDomain, &d.ClusterDomain},
	} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	if c.CDIDirs == nil {
		c.CDIDirs = d.CDIDirs
	}
	if c.SeccompProfileRoot == "" {
		c.SeccompProfileRoot = filepath.Join(c.RootDirectory, "seccomp")
	}
	if c.MaxConcurrent <= 0 {
		c.MaxConcurrent = max(4, 2*runtime.NumCPU())
	}
	if c.UsagePeriod <= 0 {
		c.UsagePeriod = usage.DefaultUsagePeriod
	}
	if c.Connection == nil {
		c.Connection = func(error) {}
	}
	if c.NodeIPs == nil {
		c.NodeIPs = func() []string { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Image.Log == nil {
		c.Image.Log = c.Log
	}
	if c.Network.Log == nil {
		c.Network.Log = c.Log
	}
	return c
}

// makeDirs creates the directories, and replaces their paths by the resolved ones, which the mount table shows.
func (c *Config) makeDirs() error {
	d := c.dirs()
	for _, dir := range []string{d.Root, d.State, d.PodLogs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{d.PodsDir(), d.Path("exits"), d.Path("ns"), d.Path("shm"), d.Path("logs"), d.Path("pause")} {
		if err := os.MkdirAll(dir, d.Modes()[dir]); err != nil {
			return err
		}
	}
	for dir, mode := range d.Modes() {
		if err := tighten(dir, mode); err != nil {
			return err
		}
	}
	for _, dir := range []*string{&c.RootDirectory, &c.StateDirectory, &c.PodLogsDir} {
		path, err := filepath.EvalSymlinks(*dir)
		if err != nil {
			return err
		}
		*dir = path
	}
	return nil
}

// tighten removes permissions that an existing directory should not have: earlier versions created some of them open to all users.
func tighten(dir string, mode fs.FileMode) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.IsDir() || info.Mode().Perm()&^mode == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode()&(mode|fs.ModeSticky|fs.ModeSetgid|fs.ModeSetuid))
}

// ContainerdVersion returns the latest known version of an external containerd; empty for the embedded one.
func (r *Runtime) ContainerdVersion() string {
	if v := r.containerd.version.Load(); v != nil {
		return *v
	}
	return ""
}

// Run follows containerd's events, tears down removed pods and watches the preload directories. It returns nil when ctx ends,
// after its goroutines have ended.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(r.ns(ctx))
	g.Go(func() error { return r.follower.followEvents(ctx) })
	g.Go(func() error { return r.removal.Teardown.Run(ctx) })
	g.Go(func() error { return shims.ReapShims(ctx) })
	g.Go(func() error { return r.net.Watch(ctx) })
	g.Go(func() error { r.processes.CleanCommands(ctx); return nil })
	g.Go(func() error { r.meter.MeasureUsage(ctx); return nil })
	g.Go(func() error { r.logs.Sweep(); return nil })
	g.Go(func() error { r.imageUse.FollowImages(ctx); return nil })
	g.Go(func() error { r.garbage.CollectGarbage(ctx); return nil })
	g.Go(func() error { r.reserve.Keep(ctx); return nil })
	g.Go(func() error { r.images.Repair.Run(ctx); return nil })
	err := g.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Preload imports the archives of the preload directories, calls done once, and follows changes until ctx ends.
func (r *Runtime) Preload(ctx context.Context, done func(error)) error {
	return r.images.Preload.Run(r.ns(ctx), done)
}

// Close waits for network set-ups in progress and disconnects from containerd; all containers keep running. Call it after Run has
// returned.
func (r *Runtime) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, f := range slices.Backward(r.close) {
		errs = append(errs, f(ctx))
	}
	r.close = nil
	return errors.Join(errs...)
}

// closers are called in reverse order.
type closers []func(context.Context) error

func (c *closers) add(f func(context.Context) error) { *c = append(*c, f) }

// ns adds the containerd namespace to a context, which the in-process services require.
func (r *Runtime) ns(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.cfg.Namespace)
}

// List returns the pods that have a sandbox that is not being removed, or that keep the place of one.
func (r *Runtime) List(ctx context.Context) ([]manifests.Key, error) {
	sandboxes, err := r.client.SandboxStore().List(r.ns(ctx), r.records.OwnFilter())
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var keys []manifests.Key
	for _, sb := range sandboxes {
		m, err := record.MetaOf(sb)
		if err != nil {
			continue // Load has reported it
		}
		if m.State == record.Active || m.State == record.Removing && m.Remade {
			keys = append(keys, m.Key)
		}
	}
	return keys, nil
}

// Images returns the image service.
func (r *Runtime) Images() *imageuse.Images { return r.imageUse }

// SyncPins keeps the images with these digests from being collected, see Images.
func (r *Runtime) SyncPins(ctx context.Context, digests []string) (gone []string, err error) {
	return r.imageUse.SyncPins(ctx, digests)
}

// dirs returns the directories of a configuration.
func (c *Config) dirs() layout.Dirs {
	return layout.Dirs{Root: c.RootDirectory, State: c.StateDirectory, PodLogs: c.PodLogsDir, ContainerLogs: c.ContainerLogsDir}
}

// FollowObjects passes on the current set of objects. It removes directories of deleted claims whose class has the reclaim policy
// Delete; removable reports whether an object that is missing at its origin was really deleted.
func (r *Runtime) FollowObjects(objects *manifests.Objects, removable func(manifests.Origin) bool) {
	r.removal.FollowObjects(objects, removable)
}

// Removals returns the removals that are slow or have failed, except those of pods that are being recreated.
func (r *Runtime) Removals() []upkeep.Removal { return r.removal.Removals() }

// ReclaimContainers frees disk space that exited containers use: their writable layers, and logs other than the latest. It returns
// the number of bytes. The records stay, and with them the status of the pods.
func (r *Runtime) ReclaimContainers(ctx context.Context) (int64, error) {
	return r.garbage.ReclaimContainers(ctx)
}

// Places returns the cgroups in which the kernel accounts the usage of each pod.
func (r *Runtime) Places(ctx context.Context) ([]model.Place, error) { return r.meter.Places(ctx) }

// MeasureDisk measures the disk usage of a pod.
func (r *Runtime) MeasureDisk(ctx context.Context, key manifests.Key) (runner.DiskSizes, error) {
	return r.meter.MeasureDisk(ctx, key)
}
