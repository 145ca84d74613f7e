// Package daemon assembles the daemon: sources, rollouts, runner, runtime and API, wired together as an App that runs until it is told to end.
//
// It must not decide anything about pods: decisions belong to runner, rollout and node. App.Run starts all goroutines, and returns when they have ended.
package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/config"
	"monopod/internal/daemon/applier"
	"monopod/internal/daemon/board"
	"monopod/internal/daemon/counters"
	"monopod/internal/daemon/imagegc"
	"monopod/internal/dirlock"
	"monopod/internal/host"
	"monopod/internal/logfile"
	"monopod/internal/memory"
	"monopod/internal/model"
	"monopod/internal/needs"
	"monopod/internal/offline"
	"monopod/internal/pause"
	"monopod/internal/version"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/node"
	"monopod/node/admission"
	"monopod/node/apiserver"
	"monopod/node/budget"
	"monopod/node/capacity"
	"monopod/node/endpoints"
	"monopod/node/events"
	"monopod/node/lockfile"
	"monopod/node/metrics"
	"monopod/node/names"
	"monopod/node/shutdown"
	"monopod/node/stats"
	"monopod/node/systemd"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/watcher"
	"monopod/watcher/applied"
	"monopod/watcher/fetch"
	"monopod/watcher/file"
)

// Runtime is what App needs of a runtime besides running pods.
type Runtime interface {
	runner.Runtime
	counters.Measured
	// Run does the runtime's own background work until ctx ends.
	Run(ctx context.Context) error
	// Preload imports image archives, calls done once, and follows changes until ctx ends.
	Preload(ctx context.Context, done func(error)) error
	// FollowObjects tells what documents there are, and of which places it is known that what is not there is gone.
	FollowObjects(objects *manifests.Objects, removable func(manifests.Origin) bool)
	// Cleanup gives back what is not part of a pod, and refuses while there are pods. Run must be running.
	Cleanup(ctx context.Context) error
	// Purge deletes what is left after Cleanup in a containerd that goes on without us.
	Purge(ctx context.Context) error
	// SyncPins has the images with these digests kept, whatever their tags come to stand for, and no others; gone are
	// those of which nothing is there.
	SyncPins(ctx context.Context, digests []string) (gone []string, err error)
	// Images is what is known of its images.
	Images() needs.ImageService
	// ReclaimContainers makes room with what ended containers left that nobody needs, and returns how many bytes that were.
	ReclaimContainers(ctx context.Context) (int64, error)
	// Close lets go of the runtime. What runs goes on.
	Close() error
}

// openRuntime starts or connects to the runtime.
type openRuntime func(ctx context.Context, cfg *config.Loaded, log *slog.Logger) (Runtime, error)

// Waits between attempts to open the runtime, and how long one may take before it is worth a word.
const (
	slowOpen    = time.Second
	FirstReopen = 200 * time.Millisecond
	lastReopen  = 5 * time.Second
)

// Machine is what an App needs of the machine besides files; tests replace it.
type Machine struct {
	// Open starts or connects to the runtime.
	Open openRuntime
	// Addresses returns those of this machine, IPv4 first.
	Addresses func() ([]string, error)
	// Capacity returns what there is, with the file system of a directory; nil: pods are not kept from anything.
	Capacity func(storage string) (capacity.Machine, error)
	// Gateways returns where pods may ask for names; nil: nowhere.
	Gateways func(*config.Config) ([]netip.Prefix, error)
	// Cgroups returns where they are mounted; nil: stats.FindHierarchies.
	Cgroups func() (stats.Hierarchies, error)
	// Release gives memory of this process back; nil: giveBack.
	Release func()
	// Patience is how long to wait for another instance that is about to end.
	Patience time.Duration
	// TakenUp is how long who applies something waits until it can be seen; 0: takenUpWithin.
	TakenUp time.Duration
	// Now is the clock of restarts; nil: time.Now.
	Now func() time.Time
	// Aside is for how long pods stay whose file gets a name that is not read; 0: for a moment.
	Aside time.Duration
	// Runs are what only runs of their own need.
	Runs RunMachine
}

// App is the daemon: sources, runner, runtime and API, wired together.
type App struct {
	cfg     *config.Loaded
	Log     *slog.Logger
	machine Machine

	// Only, unless nil, are read instead of what is configured.
	Only []watcher.Source
	// Removing says that it runs to remove all pods.
	Removing bool
	// Lent says that somebody else holds the locks of the directories for this App.
	Lent     bool
	locks    dirlock.Locks
	listener net.Listener
	settings json.RawMessage
	Board    *board.Board
	inside   *inside
	events   *events.Recorder
	// inputs are those in trouble, for publish.
	inputs map[inputKey]model.Input
	// tidied says, for publish, that the copies of sources that are no more have been removed.
	tidied   bool
	applied  *applied.Store
	rollouts *rollout.Controller
	pins     *imagegc.Pins
	images   *imagegc.Images
	memory   *memory.Trimmer
	resolver *names.Server
	gate     *admission.Controller
	gauges   counters.Gauges
	// stats reads what the machine and the pods use, when somebody asks.
	stats *stats.Collector
	// tally counts what is done; ends answers who asks as a kubelet does.
	tally *metrics.Tally
	ends  *endpoints.Endpoints
	// overTCP is ends as others know the pods; reporter tells the API server. Nil: there is none.
	overTCP  *endpoints.Endpoints
	reporter *apiserver.Agent
	// hidden has what the API server does not show.
	hidden *board.Hidden
	// news gets a value when the Node is to be told at once.
	news chan struct{}
	// traces, unless nil, tells how the starts of pods went.
	traces *counters.Traces
	// streams answers what reaches into pods.
	streams http.Handler
	watcher *watcher.Watcher
	// Manager is the service manager, if one has started this process.
	Manager *systemd.Notifier
	// resources are those of the machine; nil where pods are not kept from any.
	resources *nodeResources
	// Place is the cgroup of this process, if it has one of its own.
	Place budget.Cgroup
	// Lock, unless nil, is the one that others may want.
	Lock *lockfile.Lock
	// strain watches what there is too little of; nil: nobody does.
	strain *strain
	// Shutdown, unless nil, stops pods before the machine goes down.
	Shutdown *shutdown.Manager
}

// New returns the daemon of a configuration. It does no I/O.
func New(cfg *config.Loaded, log *slog.Logger, m Machine) *App {
	a := &App{cfg: cfg, Log: log, machine: m, Board: board.New(), inside: &inside{}, pins: imagegc.NewPins(log), applied: applied.NewStore(filepath.Join(cfg.RootDirectory, "applied"))}
	a.tally, a.hidden = metrics.NewTally(), &board.Hidden{}
	a.events = events.New(events.Config{Dir: offline.RecordIn(cfg.RootDirectory), Node: cfg.NodeName, Log: log, Seen: a.tally.Event})
	a.images = a.newImages()
	a.memory = memory.NewTrimmer()
	if m.Release != nil {
		a.memory.Release = m.Release
	}
	a.inside.over = a.memory.Answered
	starts := counters.NewStartClock(a.tally)
	a.traces = a.newTraces()
	a.Board.Stir = func(c pool.Change) { a.memory.Stir(); starts.Note(c); a.traces.Note(c); a.notAdmitted(c) }
	a.cfg.Containerd = a.containerd
	a.cfg.Events = a.events
	if m.Gateways != nil && cfg.PodDNS == config.PodDNSAuto && len(cfg.ClusterDNS) == 0 {
		a.cfg.Resolver = a.nameServers
	}
	return a
}

// Open takes the locks and the socket: what another instance may hold already. From here on clients are
// not refused, and get answers as soon as Run is called.
func (a *App) Open() (err error) {
	if a.settings, err = a.cfg.JSON(); err != nil {
		return err
	}
	if a.rollouts, err = a.newRollouts(); err != nil {
		return err
	}
	if a.stats, err = counters.NewCollector(&a.cfg.Config, a.machine.Cgroups, &a.gauges); err != nil {
		return err
	}
	a.Board.Rollouts = a.rollouts
	if !a.Lent {
		if a.locks, err = dirlock.TakeLocks(a.machine.Patience, a.cfg.StateDirectory, a.cfg.RootDirectory); err != nil {
			return err
		}
	}
	if err = errors.Join(a.openGate(), a.measure()); err != nil {
		a.locks.Release()
		return err
	}
	if a.listener, err = node.Listen(a.cfg.Socket); err != nil {
		a.locks.Release()
		return err
	}
	return nil
}

// Close gives back what Open took.
func (a *App) Close() {
	if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		a.Log.Warn("close socket", "err", err)
	}
	a.locks.Release()
}

// Run serves until ctx ends. All pods go on running then.
func (a *App) Run(ctx context.Context) error {
	for _, w := range slices.Concat(a.cfg.Warnings, a.cfg.ProviderWarnings()) {
		if a.Removing {
			break
		}
		a.Log.Warn("configuration: " + w)
	}
	a.Log.Info("monopod starts", "version", version.String(), "pid", os.Getpid(), "node", a.cfg.NodeName, "files", a.cfg.StaticPodPath, "url", fetch.RedactURL(a.cfg.StaticPodURL), "socket", a.cfg.Socket)
	defer a.record(ctx)()
	g, ctx := errgroup.WithContext(ctx)
	if a.cfg.Resolver != nil {
		a.startResolver(ctx, g)
	}
	a.watcher = watcher.New(a.Log, a.sources()...)
	a.openEndpoints()
	if a.Manager.Listens() {
		g.Go(func() error { newService(a).run(ctx); return nil })
	}
	server := a.server()
	a.streams = server.Streams()
	g.Go(func() error { return server.Run(ctx, a.listener) })
	a.serve(ctx, g)
	g.Go(func() error { return a.watch(ctx) })
	if a.reporter != nil {
		g.Go(func() error { return a.reporter.Run(ctx) })
	}
	g.Go(func() error { return a.rollouts.Run(ctx) })
	g.Go(func() error { a.memory.Run(ctx); return nil })
	g.Go(func() error { a.gate.Run(ctx); return nil })
	if a.traces != nil {
		g.Go(func() error { a.traces.Tracer.Run(ctx); return nil })
	}
	if a.Lock != nil {
		g.Go(func() error { return a.handOver(ctx) })
	}
	if a.strain != nil {
		g.Go(func() error { a.strain.run(ctx); return nil })
	}
	if a.Only == nil {
		g.Go(func() error { a.watchOOM(ctx, "/dev/kmsg"); return nil })
	}
	if a.Shutdown != nil {
		a.Shutdown.Resume()
		g.Go(func() error { a.Shutdown.Run(ctx); return nil })
	}
	g.Go(func() error { return a.runRuntime(ctx) })
	err := g.Wait()
	switch {
	case errors.Is(err, errHandedOver):
		return nil
	case err == nil:
		a.Log.Info(a.stopping("monopod stops"))
	}
	return err
}

func (a *App) server() *node.Server {
	cfg := node.Config{
		Pods: a.Board, Logs: logfile.New(a.cfg.PodLogsDir), Inputs: a.Board, Whys: a.explainer(), Events: a.events, Revisions: revisions{a.rollouts}, Images: a.images,
		Leaving: a.Board.LeavingViews, Settings: a.settings, Version: version.String(), Agent: a.cost, Log: a.Log, Routes: a.routes(), Around: a.ends.OnSocket, Alias: a.alias(),
		Reach: a.inside, Files: a.inside, StreamIdleTimeout: a.cfg.StreamingConnectionIdleTimeout,
	}
	cfg.Objects = a.objects
	if a.Only == nil { // else nobody reads what is applied
		cfg.Applier, cfg.Scheduler = a.applier(), a.gate
	}
	return node.NewServer(cfg)
}

func (a *App) applier() *applier.Applier {
	return &applier.Applier{Store: a.applied, Board: a.Board, Policy: a.cfg.Policy(a.cfg.AppliedSecurity), Order: a.cfg.SourceNames(), Log: a.Log, TakenUp: a.machine.TakenUp}
}

// watch follows the manifests.
func (a *App) watch(ctx context.Context) error {
	said := a.openApplied("") // before it is read
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.watcher.Run(ctx, a.publish) })
	g.Go(func() error {
		for pause.For(ctx, finishEvery); ctx.Err() == nil; pause.For(ctx, finishEvery) {
			said = a.openApplied(said)
		}
		return nil
	})
	return g.Wait()
}

// finishEvery is how often is tried again what could not be finished.
const finishEvery = time.Minute

// openApplied finishes a change of applied objects that is stored and could not be carried out, if there is one. It
// logs an error that has not been said, and returns its text.
func (a *App) openApplied(said string) string {
	err := a.applied.Open()
	if err == nil {
		return ""
	}
	if lost, ok := errors.AsType[*applied.DamagedError](err); ok {
		a.appliedLost(lost)
		return ""
	}
	if err.Error() != said {
		a.Log.Error("what was applied cannot be read or changed", "err", err)
	}
	return err.Error()
}

// sources returns the configured sources by precedence. Pods that an earlier run started from others go when all of
// these have been read.
func (a *App) sources() []watcher.Source {
	if a.Only != nil {
		return a.Only
	}
	all := a.remoteSources()
	if a.cfg.StaticPodPath != "" {
		all = append(all, file.New(file.Config{
			Path: a.cfg.StaticPodPath, CheckFrequency: a.cfg.FileCheckFrequency, Load: load(config.SourceFile, a.cfg.Policy(a.cfg.StaticPodPathSecurity)), Log: a.Log, Aside: a.machine.Aside,
		}))
	}
	if a.cfg.StaticPodURL != "" {
		all = append(all, fetch.NewHTTPSource(fetch.HTTPConfig{
			URL: a.cfg.StaticPodURL, Header: a.cfg.StaticPodURLHeader, CheckFrequency: a.cfg.HTTPCheckFrequency, Load: loadParts(config.SourceHTTP, a.cfg.RemotePolicy(a.cfg.StaticPodURLSecurity, a.cfg.StaticPodURLCriticalPods)), Log: a.Log,
			Copy: a.cfg.CopyOf(config.SourceHTTP),
		}))
	}
	all = append(all, file.New(file.Config{
		Name: config.SourceApplied, Path: a.applied.Dir(), CheckFrequency: a.cfg.FileCheckFrequency, Whole: a.applied.Whole(),
		Load: load(config.SourceApplied, a.cfg.Policy(a.cfg.AppliedSecurity)), Log: a.Log,
	}))
	if a.cfg.APIServerPods {
		all = append(all, a.boundPods())
	}
	order := a.cfg.SourceNames()
	slices.SortStableFunc(all, func(x, y watcher.Source) int {
		return cmp.Compare(slices.Index(order, x.Name()), slices.Index(order, y.Name()))
	})
	return all
}

// load is the watcher's way to manifests.
func load(source string, policy policy.Policy) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		defer memory.AfterInput(len(data))
		return decode.All(input, data, decode.Options{Source: source, Policy: policy, Author: authorOf(source)})
	}
}

// loadParts is load for sources that judge object by object.
func loadParts(source string, policy policy.Policy) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		defer memory.AfterInput(len(data))
		return decode.Parts(input, data, decode.Options{Source: source, Policy: policy, Author: authorOf(source)})
	}
}

// authorOf returns who writes the documents of a source.
func authorOf(source string) decode.Author {
	if source == config.SourceAPIServer {
		return decode.AuthorAPIServer
	}
	return decode.AuthorUser
}

// runRuntime keeps a runtime open and a pool running on it. Whatever goes wrong with the runtime is tried
// again: the machine may have booted with a full disk, or without its containerd.
func (a *App) runRuntime(ctx context.Context) error {
	wait, last := FirstReopen, ""
	for ctx.Err() == nil {
		slow := time.AfterFunc(slowOpen, func() { a.Board.Blind(a.notYet()) })
		rt, err := a.machine.Open(ctx, a.cfg, a.Log)
		slow.Stop()
		if err == nil {
			if last != "" {
				a.containerd(nil)
			}
			wait, last = FirstReopen, ""
			err = a.session(ctx, rt)
		}
		if ctx.Err() != nil {
			return nil
		}
		level := slog.LevelDebug
		if err.Error() != last {
			level, last = slog.LevelError, err.Error()
			a.containerd(err)
		}
		a.Log.Log(ctx, level, "containers cannot be seen or changed now; trying again", "in", wait, "err", err)
		a.Board.Blind(err)
		pause.For(ctx, wait)
		wait = min(2*wait, lastReopen)
	}
	return nil
}

// notYet is what pods wait for while the runtime is being opened.
func (a *App) notYet() error {
	if e := a.cfg.ContainerRuntimeEndpoint; e != "" {
		return fmt.Errorf("containerd at %s has not answered yet", e)
	}
	return errors.New("the containerd inside monopod is still starting")
}

// session runs pods on one open runtime until ctx ends or the runtime fails. The error is nil only when ctx has ended.
func (a *App) session(ctx context.Context, rt Runtime) error {
	existing, err := rt.List(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("list pods: %w", err), rt.Close())
	}
	imported, done := context.WithCancel(ctx)
	defer done()
	defer a.gauges.Attach(rt)()
	pool := pool.New(counters.Timed{Runtime: preloading{rt, imported}, Tally: a.tally, Traces: a.traces}, a.poolConfig(rt))
	a.gate.Attach(admission.Pool{SetRule: func(r func(*manifests.Pod) runner.Rule) { pool.Gate(r) }, Cleanup: rt.Cleanup})
	defer a.inside.open(rt)()
	defer a.Board.Leaves(rt)()
	defer a.strain.attach(pool, rt)()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ended(ctx, "runtime", rt.Run(ctx)) })
	g.Go(func() error {
		return ended(ctx, "preload images", rt.Preload(ctx, func(err error) { a.preloaded(err); done() }))
	})
	g.Go(func() error { return ended(ctx, "pods", pool.Run(ctx)) })
	g.Go(func() error { return a.Board.Attach(ctx, pool, existing) })
	g.Go(func() error { a.followWorkloads(ctx, pool); return nil })
	g.Go(func() error { a.pins.Follow(ctx, rt); return nil })
	g.Go(func() error { a.images.Follow(ctx, rt.Images(), imported.Done()); return nil })
	err = g.Wait()
	a.Board.Detach()
	if closeErr := rt.Close(); closeErr != nil {
		a.Log.Warn("close runtime", "err", closeErr)
	}
	return err
}

// poolConfig is the configuration of what runs pods on a runtime.
func (a *App) poolConfig(rt Runtime) pool.Config {
	return pool.Config{
		Log: a.Log, NodeName: a.cfg.NodeName, NodeIPs: nodeIPs(a.machine.Addresses, a.Log), MaxConcurrent: a.cfg.MaxConcurrentStarts, MaxPods: a.cfg.MaxPods,
		Room: a.resources.room(), NodeLabels: a.nodeLabels(), Platform: host.Platform(),
		Now: a.machine.Now, Events: a.events, Gone: a.goneFromHere,
		Follow: func(d model.Desired, objects *manifests.Objects) {
			a.memory.Expect(len(d.Pods))
			rt.FollowObjects(objects, d.Removable)
		},
		Options: plan.Options{MaxBackOff: a.cfg.CrashLoopBackOff.MaxContainerRestartPeriod, Parallel: 2 * runtime.NumCPU()},
	}
}

// goneFromHere keeps the last status of a pod that the API server has bound to this node until it has been told.
func (a *App) goneFromHere(s podstatus.Status) {
	if a.reporter != nil {
		a.reporter.Gone(s.Pod)
	}
}

// nodeIPs asks for the addresses of this machine each time: they come and go with its network.
func nodeIPs(addresses func() ([]string, error), log *slog.Logger) func() []string {
	return func() []string {
		ips, err := addresses()
		if err != nil {
			log.Debug("pods have no host address", "err", err)
		}
		return ips
	}
}

// ended turns the end of a component into an error unless ctx has ended.
func ended(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		return fmt.Errorf("%s: ended unexpectedly", what)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// preloaded hears that the image archives were imported. A stop cuts that off, and it is done at the next start.
func (a *App) preloaded(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		a.Log.Error("preload images", "err", err)
	}
}
