package ctrd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"monopod/internal/boottime"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/claims"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/embed/guard"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/remote"
	"monopod/runner/ctrd/shim"
	"monopod/runner/spec"
)

var _ runner.Runtime = (*Runtime)(nil)

// Runtime runs pods on containerd. Its methods may be called concurrently, but not for the same pod.
type Runtime struct {
	cfg    Config
	log    *slog.Logger
	client *client.Client
	images *image.Store
	net    *network.Network
	logs   *logs.Collector
	host   spec.Host
	// limitsKnown: see warnOfLimits.
	limitsKnown sync.Once
	bootID      string
	index       *index
	// features remembers what the OCI runtimes can do.
	features featureBook
	// book keeps two containers from being given one device.
	book deviceBook

	teardown *teardown
	watch    *watchers
	adds     *adds
	commands commands
	locks    keyLock
	ids      idRanges
	// reserve is what is kept for a full disk.
	reserve *reserve
	// slots bound how many containers are created or removed at once, netSlots how many CNI runs go on: more
	// than twice the processors only makes all of them slower.
	slots, netSlots slots
	cgroups         cgroups
	cpus            *cpus

	// claims knows which claim has which storage; remote mounts what takes a tool to mount.
	claims   *claims.Book
	remote   *remote.Mounter
	followed atomic.Pointer[followed]
	// freed says that a pod with claims is gone.
	freed atomic.Bool

	// version is that of another containerd, if it has said it.
	version atomic.Pointer[string]

	// usage is what pods use of the disk.
	usage *usage
	// snapshots is where another containerd keeps its snapshots, if it says so.
	snapshots string
	// imagesChanged holds a token when images came, or fewer are in use.
	imagesChanged chan struct{}
	// imagesWant is how many bytes an image may take that the disk was too full for.
	imagesWant atomic.Int64

	// secretsMu guards secretsMounted.
	secretsMu      sync.Mutex
	secretsMounted bool

	// repaired are the databases of the embedded containerd that had to be replaced at the start.
	repaired []guard.Repair

	events *subscription
	close  []func(context.Context) error
}

// Open re-attaches the logs, starts or connects to containerd and brings its records and the directories in order.
// The caller holds a lock on both directories. The order matters: logs first, because what containers wrote meanwhile sits in FIFOs
// that live no longer than the shims; the subscription before the records are read, so that no exit is missed.
// Until Run is called, events wait in the subscription and teardown does not proceed.
func Open(ctx context.Context, cfg Config) (_ *Runtime, err error) {
	cfg = cfg.withDefaults()
	r := &Runtime{
		cfg:   cfg,
		log:   cfg.Log,
		index: newIndex(),
		watch: newWatchers(),
		adds:  newAdds(),
		usage: newUsage(), imagesChanged: make(chan struct{}, 1),
		slots: newSlots(cfg.MaxConcurrent), netSlots: newSlots(cfg.MaxConcurrent),
	}
	r.teardown = newTeardown(r)
	defer func() {
		if err != nil {
			r.reserve.spend(err) // it will be tried again
			err = errors.Join(err, r.Close())
		}
	}()
	if err := r.prepareDirs(); err != nil {
		return nil, err
	}
	r.reserve = newReserve(&r.cfg)
	if r.bootID, err = boottime.ID(); err != nil {
		return nil, err
	}
	r.openBook()
	r.remote = remote.NewMounter(func() { r.watch.notify(manifests.Key{}) })
	r.onClose(func(context.Context) error { r.remote.Close(); return nil })
	if r.host, err = hostFacts(cfg); err != nil {
		return nil, err
	}
	if r.cgroups, err = findCgroups(r.host.Cgroups); err != nil {
		return nil, err
	}
	r.limitPods()
	if r.cpus, err = readCPUs("/sys/devices/system/cpu", cfg.ReservedCPUs); err != nil {
		return nil, fmt.Errorf("processors: %w", err)
	}
	if r.cgroups.slices != nil {
		r.onClose(func(context.Context) error { r.cgroups.slices.close(); return nil })
	}
	r.logs = logs.NewCollector(logs.Config{Dir: r.path("logs"), Boot: r.bootID, Limits: cfg.Logs, PodDirs: r.ownLogDirs, Notice: r.logNotice, Log: r.log})
	r.onClose(func(context.Context) error { return r.logs.Close() })
	if err := r.logs.Recover(); err != nil {
		r.log.Warn("output of containers cannot be taken up as it was left", "err", err)
	}
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	cfg.Image.Snapshotter, cfg.Image.OnNew = r.cfg.Snapshotter, r.tellImages
	if cfg.Image.OnChange == nil {
		cfg.Image.OnChange = func() { r.watch.notify(manifests.Key{}) }
	}
	if cfg.Image.Doubt, err = r.openShutdown(); err != nil {
		return nil, err
	}
	cfg.Image.OnDamage, cfg.Image.OnFull, cfg.Image.Disk.Dir = r.damageNotice, r.wantImages, r.imageRoot()
	if cfg.Endpoint == "" {
		cfg.Image.Blobs = r.contentDir()
	}
	r.images = image.NewStore(r.client, cfg.Image)
	cfg.Network.Notice = r.networkNotice
	r.net = network.New(cfg.Network)
	if err := r.net.Init(ctx); err != nil {
		// Pods that run are not touched by it, and those on the host network need none.
		r.log.Error("pods get no network until this is mended", "err", err)
	}
	r.events = r.subscribe(ctx)
	r.onClose(func(context.Context) error { r.events.cancel(); return nil })
	if err := r.load(r.ns(ctx)); err != nil {
		return nil, err
	}
	r.reattachLogs()
	r.adoptNetworks()
	r.emptyAllEvicted()
	return r, r.cleanStart(r.ns(ctx))
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
		c.UsagePeriod = defaultUsagePeriod
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

// prepareDirs makes our directories.
func (r *Runtime) prepareDirs() error {
	for _, d := range []string{
		r.cfg.RootDirectory, r.cfg.StateDirectory, r.podsDir(), r.cfg.PodLogsDir,
		r.path("exits"), r.path("ns"), r.path("shm"), r.path("logs"), r.path("pause"),
	} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	// Mounts are known by their real paths.
	for _, d := range []*string{&r.cfg.RootDirectory, &r.cfg.StateDirectory, &r.cfg.PodLogsDir} {
		path, err := filepath.EvalSymlinks(*d)
		if err != nil {
			return err
		}
		*d = path
	}
	return nil
}

// connect starts the embedded containerd or connects to another.
func (r *Runtime) connect(ctx context.Context) error {
	if r.cfg.Endpoint != "" {
		return r.connectTo(ctx)
	}
	if err := becomeSubreaper(); err != nil {
		return err
	}
	root := filepath.Join(r.cfg.RootDirectory, "containerd")
	if r.cfg.Snapshotter == "" {
		var err error
		if r.cfg.Snapshotter, err = embed.Snapshotter(root); err != nil {
			return err
		}
	}
	cfg := embed.Config{
		Root:        root,
		State:       filepath.Join(r.cfg.StateDirectory, "containerd"),
		Snapshotter: r.cfg.Snapshotter,
		ShimEnv:     shim.InCgroups(r.cfg.ShimCgroups),
		Log:         r.log,
	}
	cfg.Guard = embed.NewGuard(cfg, r.bootID, r.databaseNotice)
	c, stop, err := embed.Start(ctx, cfg)
	if err != nil {
		return err
	}
	r.client = c
	r.onClose(stop)
	return nil
}

func (r *Runtime) connectTo(ctx context.Context) error {
	// The client's own back-off would keep us from a containerd that is back for up to ten seconds.
	retry := backoff.Config{BaseDelay: minReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	c, err := client.New(endpointPath(r.cfg.Endpoint), client.WithDefaultNamespace(r.cfg.Namespace),
		client.WithExtraDialOpts([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})}))
	if err != nil {
		return fmt.Errorf("connect to containerd at %s: %w", r.cfg.Endpoint, err)
	}
	r.onClose(func(context.Context) error { return c.Close() })
	if r.client, err = boundedClient(c, r.cfg.Namespace); err != nil {
		return fmt.Errorf("client of containerd at %s: %w", r.cfg.Endpoint, err)
	}
	if r.cfg.Snapshotter == "" {
		r.cfg.Snapshotter = embed.Overlayfs
	}
	if err := r.askVersion(ctx); err != nil {
		return fmt.Errorf("containerd at %s: %w", r.cfg.Endpoint, err)
	}
	r.snapshots = r.findSnapshots(ctx)
	// Images are mounted by this process to look into them; what it left there when it was killed goes.
	if err := mount.SetTempMountLocation(r.path("tmpmounts")); err != nil {
		return fmt.Errorf("directory for temporary mounts: %w", err)
	}
	warnings, err := mount.CleanupTempMounts(0)
	for _, w := range append(warnings, err) {
		if w != nil {
			r.log.Warn("temporary mount is left", "err", w)
		}
	}
	return nil
}

// boundedClient limits what this process reads of manifests and configs into memory, also of those that others gave another containerd.
func boundedClient(c *client.Client, namespace string) (*client.Client, error) {
	conn, ok := c.Conn().(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("its connection is a %T", c.Conn())
	}
	return client.NewWithConn(conn, client.WithDefaultNamespace(namespace), client.WithServices(client.WithContentStore(bounded.Store(c.ContentStore()))))
}

// askVersion sees whether containerd answers, and asks another one what it is: after a restart that may be newer.
func (r *Runtime) askVersion(ctx context.Context) error {
	v, err := r.client.Version(ctx)
	if err == nil && r.cfg.Endpoint != "" {
		r.version.Store(&v.Version)
	}
	return err
}

// ContainerdVersion is what another containerd said last when it was asked for its version; empty for the one inside this process.
func (r *Runtime) ContainerdVersion() string {
	if v := r.version.Load(); v != nil {
		return *v
	}
	return ""
}

// Run follows containerd's events, tears down what was removed and watches the preload directories. It returns
// nil when ctx ends, and has waited for its goroutines.
func (r *Runtime) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(r.ns(ctx))
	g.Go(func() error { return r.followEvents(ctx) })
	g.Go(func() error { return r.teardown.run(ctx) })
	g.Go(func() error { return reapShims(ctx) })
	g.Go(func() error { return r.net.Watch(ctx) })
	g.Go(func() error { r.cleanCommands(ctx); return nil })
	g.Go(func() error { r.measureUsage(ctx); return nil })
	g.Go(func() error { r.logs.Sweep(); return nil })
	g.Go(func() error { r.followImages(ctx); return nil })
	g.Go(func() error { r.collectGarbage(ctx); return nil })
	g.Go(func() error { r.reserve.keep(ctx); return nil })
	g.Go(func() error { r.images.Heal(ctx); return nil })
	err := g.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Preload imports the archives of the preload directories, reports once to done, and follows changes until ctx ends.
func (r *Runtime) Preload(ctx context.Context, done func(error)) error {
	return r.images.RunPreload(r.ns(ctx), done)
}

// Close waits for network set-ups under way and lets go of containerd; every container runs on. Call it when Run has returned.
func (r *Runtime) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r.adds.wait(ctx)
	r.commands.wait()
	var errs []error
	for _, f := range slices.Backward(r.close) {
		errs = append(errs, f(ctx))
	}
	r.close = nil
	return errors.Join(errs...)
}

func (r *Runtime) onClose(f func(context.Context) error) { r.close = append(r.close, f) }

// ns puts the containerd namespace on a context: the in-process services ask for it.
func (r *Runtime) ns(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.cfg.Namespace)
}

// path returns a path below the state directory.
func (r *Runtime) path(elem ...string) string {
	return filepath.Join(append([]string{r.cfg.StateDirectory}, elem...)...)
}

func (r *Runtime) podsDir() string { return filepath.Join(r.cfg.RootDirectory, "pods") }

// podDir is where a pod's files and volumes are.
func (r *Runtime) podDir(uid string) string { return filepath.Join(r.podsDir(), uid) }

func (r *Runtime) exitFile(id string) string { return r.path("exits", id+".json") }
func (r *Runtime) nsDir(id string) string    { return r.path("ns", id) }
func (r *Runtime) shmDir(id string) string   { return r.path("shm", id) }

// List returns the pods that have a sandbox which is not being removed, or the place of one.
func (r *Runtime) List(ctx context.Context) ([]manifests.Key, error) {
	sandboxes, err := r.client.SandboxStore().List(r.ns(ctx), r.ownFilter())
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var keys []manifests.Key
	for _, sb := range sandboxes {
		if l := decodeSandboxLabels(sb.Labels); l.State == sandboxActive || l.State == sandboxRemoving && l.Remade {
			keys = append(keys, l.Key)
		}
	}
	return keys, nil
}

// ownFilter matches the records of this instance.
func (r *Runtime) ownFilter() string {
	return fmt.Sprintf("labels.%q==%q", labelOwner, r.cfg.RootDirectory)
}

// keyLock is one mutex per key, for work on one container or sandbox that the worker and the teardown may both do.
type keyLock struct {
	mu   sync.Mutex
	held map[string]*heldKey
}

type heldKey struct {
	free  chan struct{}
	users int
}

// lock waits for the key and returns the function that gives it back.
func (k *keyLock) lock(key string) func() {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*heldKey{}
	}
	h := k.held[key]
	if h == nil {
		h = &heldKey{free: make(chan struct{}, 1)}
		h.free <- struct{}{}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	<-h.free
	return func() {
		h.free <- struct{}{}
		k.mu.Lock()
		defer k.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(k.held, key)
		}
	}
}

// subscription is a live stream of containerd's events.
type subscription struct {
	events <-chan *events.Envelope
	errs   <-chan error
	cancel context.CancelFunc
}

// slots bound concurrent work.
type slots chan struct{}

func newSlots(n int) slots { return make(slots, n) }

// take waits for a slot and returns the function that gives it back.
func (s slots) take(ctx context.Context) (func(), error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
