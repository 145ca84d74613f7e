// Package daemon assembles the daemon from its configuration and Deps: sources, rollouts, pool, runtime and API, wired together leaves first.
//
// It must not decide anything about pods: decisions belong to runner, rollout and node. Daemon.Run starts all goroutines, and returns when they have ended.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemon/state"
	"monopod/internal/dirlock"
	"monopod/internal/version"
	"monopod/node"
	"monopod/runner/pool"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// Daemon is an assembled daemon, which holds its socket and its directories. Call Run once, then Close.
type Daemon struct {
	// State has the pods and their observed state.
	State *state.Store

	cfg      *config.Loaded
	log      *slog.Logger
	core     *core
	kube     kubernetes
	server   *node.Server
	listener net.Listener
	locks    dirlock.Locks
	warnings []string
	// prepare runs before any loop. The DNS server must listen, and a shutdown of the machine must be known, before pods start.
	prepare []func(context.Context)
	loops   []loop
	// forget empties the source of the applied objects of a cluster; nil if this is not a cluster.
	forget func()
	// stopping completes "Stopping monopod" and "monopod stops".
	stopping string
}

// loop blocks until ctx ends. An error ends the daemon.
type loop func(ctx context.Context) error

// endless turns a function that ends with its context into a loop.
func endless(run func(context.Context)) loop {
	return func(ctx context.Context) error { run(ctx); return nil }
}

const podsKeepRunning = "; the pods keep running"

// Open assembles the daemon of a machine. It takes the locks of its directories, and listens on the socket: clients get answers as soon as Run is called.
func Open(cfg *config.Loaded, d Deps) (*Daemon, error) {
	c, err := newCore(cfg, d)
	if err != nil {
		return nil, err
	}
	locks, err := dirlock.TakeLocks(d.Machine.LockTimeout, cfg.StateDirectory, cfg.RootDirectory)
	if err != nil {
		return nil, err
	}
	c.gate.Load()
	if err := c.nodeMeta.Load(); err != nil {
		d.Log.Error("set all labels of the Node again, in one request to the Kubernetes API; new pods that select by them wait until then", "err", err)
	}
	m, err := newMachineParts(c)
	if err == nil {
		var a *Daemon
		if a, err = assemble(c, m); err == nil {
			a.locks, a.warnings, a.stopping = locks, slices.Concat(cfg.Warnings, containers.Warnings(c.cfg)), podsKeepRunning
			return a, nil
		}
	}
	locks.Release()
	return nil, err
}

// OpenRun assembles the daemon of one run, whose pods come from one source. It has none of the parts that are about the machine: resources, eviction,
// an API server, drain and apply. The caller holds the locks of the directories.
func OpenRun(cfg *config.Loaded, d Deps, source watcher.Source) (*Daemon, error) {
	a, err := openRun(cfg, d, source)
	if err == nil {
		a.warnings, a.stopping = slices.Concat(cfg.Warnings, cfg.ProviderWarnings()), podsKeepRunning
	}
	return a, err
}

// OpenRemoval is OpenRun for a source without pods, to remove all. Each change of a pod is passed to changed.
func OpenRemoval(cfg *config.Loaded, d Deps, source watcher.Source, changed func(pool.Change)) (*Daemon, error) {
	return openRun(cfg, d, source, changed)
}

func openRun(cfg *config.Loaded, d Deps, source watcher.Source, observers ...func(pool.Change)) (*Daemon, error) {
	c, err := newCore(cfg, d)
	if err != nil {
		return nil, err
	}
	return assemble(c, &machineParts{sources: []watcher.Source{source}, observers: observers})
}

// Close closes the socket and releases the locks.
func (a *Daemon) Close() {
	if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		a.log.Warn("close socket", "err", err)
	}
	a.locks.Release()
}

// Run serves until ctx ends. All pods keep running.
func (a *Daemon) Run(ctx context.Context) error {
	for _, w := range a.warnings {
		a.log.Warn("configuration: " + w)
	}
	cfg := a.cfg
	a.log.Info("monopod starts", "version", version.String(), "pid", os.Getpid(), "node", cfg.NodeName, "files", cfg.StaticPodPath, "url", fetch.RedactURL(cfg.StaticPodURL), "socket", cfg.Socket)
	defer a.core.events.Record(ctx, "Stopping monopod"+a.stopping)()
	g, ctx := errgroup.WithContext(ctx)
	for _, prepare := range a.prepare {
		prepare(ctx)
	}
	for _, run := range a.loops {
		g.Go(func() error { return run(ctx) })
	}
	err := g.Wait()
	switch {
	case errors.Is(err, errHandedOver):
		return nil
	case err == nil:
		a.log.Info("monopod stops" + a.stopping)
	}
	return err
}
