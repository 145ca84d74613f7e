package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/daemon/containers"
	"monopod/internal/daemon/telemetry"
	"monopod/internal/host"
	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/internal/sharing"
	"monopod/manifests"
	"monopod/node/admission"
	"monopod/node/nodemeta"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/pool"
)

// runtimeLoop keeps a runtime open and a pool running on it.
type runtimeLoop struct {
	*core
	machine *machineParts
	log     *slog.Logger
	// deps are passed to each runtime that is opened.
	deps       containers.Deps
	connection func(error)
	observers  []func(pool.Change)
	hidden     sharing.Warning
}

func newRuntimeLoop(c *core, m *machineParts) *runtimeLoop {
	r := &runtimeLoop{core: c, machine: m, log: c.deps.Log, connection: c.events.Connection(c.cfg.ContainerRuntimeEndpoint == ""), hidden: sharing.Warning{Log: c.deps.Log, Sharing: c.cfg.Sharing}}
	r.deps = containers.Deps{
		Log: c.deps.Log, Events: c.events, Connection: r.connection, PodsLimits: m.podsLimits, ShimCgroups: c.deps.Cgroup.Shims,
		Networked: c.access.Network.Set, Checked: c.memory.Checked, Services: c.services.Variables, API: c.forPods.Access,
	}
	if c.names != nil {
		r.deps.NameServers = c.names.addresses
	}
	r.observers = append(append(r.observers, m.observers...), func(pool.Change) { c.memory.PodChanged() }, c.starts.Observe, c.traces.Observe, m.link.Observe)
	return r
}

// run opens the runtime until ctx ends. All errors are retried: the machine may have booted with a full disk, or without its containerd.
func (r *runtimeLoop) run(ctx context.Context) error {
	wait, last := FirstReopen, ""
	for ctx.Err() == nil {
		slow := time.AfterFunc(slowOpen, func() { r.state.Blind(r.notYet()) })
		rt, err := r.core.deps.Machine.Open(ctx, r.cfg, r.deps)
		slow.Stop()
		if err == nil {
			if last != "" {
				r.connection(nil)
			}
			wait, last = FirstReopen, ""
			err = r.session(ctx, rt)
		}
		if ctx.Err() != nil {
			return nil
		}
		level := slog.LevelDebug
		if err.Error() != last {
			level, last = slog.LevelError, err.Error()
			r.connection(err)
		}
		r.log.Log(ctx, level, "the container runtime does not respond", "err", err, "retry_in", wait)
		r.state.Blind(err)
		pause.For(ctx, wait)
		wait = min(2*wait, lastReopen)
	}
	return nil
}

// notYet is the trouble of pods while the runtime is being opened.
func (r *runtimeLoop) notYet() error {
	if e := r.cfg.ContainerRuntimeEndpoint; e != "" {
		return fmt.Errorf("containerd at %s has not answered yet", e)
	}
	return errors.New("the containerd inside monopod is still starting")
}

// session runs pods on an open runtime until ctx ends or the runtime fails. The error is nil only if ctx has ended.
func (r *runtimeLoop) session(ctx context.Context, rt containers.Runtime) error {
	existing, err := rt.List(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("list pods: %w", err), rt.Close())
	}
	imported, done := context.WithCancel(ctx)
	defer done()
	defer r.usage.Attach(rt)()
	instrumented := telemetry.Instrumented{Runtime: containers.Preloading{Runtime: rt, Done: imported}, Tally: r.tally, Traces: r.traces}
	pool := pool.New(instrumented, r.poolConfig(rt))
	r.gate.Attach(admission.Pool{SetRule: func(rule func(*manifests.Pod) runner.Rule) { pool.Gate(rule) }, Cleanup: rt.Cleanup})
	defer r.nodeMeta.Follow(func(m nodemeta.Metadata) { pool.SetNodeLabels(r.machine.labels.Labels(m), m.LabelsLost) })()
	defer r.access.Open(rt)()
	defer r.state.Removals.Attach(rt)()
	defer r.machine.evictor.attach(pool, rt)()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ended(ctx, "runtime", rt.Run(ctx)) })
	g.Go(func() error {
		return ended(ctx, "preload images", rt.Preload(ctx, func(err error) { r.preloaded(err); done() }))
	})
	g.Go(func() error { return ended(ctx, "pods", pool.Run(ctx)) })
	g.Go(func() error { return r.state.Attach(ctx, pool, existing, r.observers...) })
	g.Go(func() error { followWorkloads(ctx, r.core, pool); return nil })
	g.Go(func() error { r.pins.Follow(ctx, rt); return nil })
	g.Go(func() error { r.images.Follow(ctx, rt.Images(), imported.Done()); return nil })
	err = g.Wait()
	r.state.Detach()
	if closeErr := rt.Close(); closeErr != nil {
		r.log.Warn("close runtime", "err", closeErr)
	}
	return err
}

// poolConfig returns the configuration of the pool on a runtime.
func (r *runtimeLoop) poolConfig(rt containers.Runtime) pool.Config {
	cfg, machine := r.cfg, &r.core.deps.Machine
	return pool.Config{
		Log: r.log, NodeName: cfg.NodeName, NodeIPs: containers.NodeIPs(machine.Addresses, r.log), MaxConcurrent: cfg.MaxConcurrentStarts, MaxPods: cfg.MaxPods,
		Room: r.machine.room(), NodeLabels: r.machine.labels.Labels(nodemeta.Metadata{}), Platform: host.Platform(),
		Now: machine.Now, Spaces: cfg.Spaces(), Events: r.events, Gone: r.machine.link.PodGone,
		Follow: func(d model.Desired, objects *manifests.Objects) {
			r.memory.Expect(len(d.Pods), len(d.Objects))
			r.hidden.Follow(d, objects)
			rt.FollowObjects(objects, d.Removable)
		},
		Options: plan.Options{MaxBackOff: cfg.CrashLoopBackOff.MaxContainerRestartPeriod, Parallel: 2 * runtime.NumCPU()},
	}
}

// preloaded logs an error of importing image archives. An import that a stop has interrupted is repeated at the next start.
func (r *runtimeLoop) preloaded(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		r.log.Error("preload images", "err", err)
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
