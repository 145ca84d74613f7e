package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/internal/program"
	"monopod/internal/trial"
	"monopod/manifests"
	"monopod/watcher"
)

const (
	// MaxOpenFailures is how often a run tries to open its runtime before it fails.
	MaxOpenFailures = 3
	// removalPatience bounds a removal, in addition to the grace periods of the pods.
	removalPatience = 2 * time.Minute
)

// Content is the content of the manifests of a run.
type Content struct {
	pods               []*manifests.Pod
	objects, workloads []*manifests.Object
	reports            []model.Input
}

// set returns the content as that of the file source: the pods that `once` keeps are read from there.
func (c *Content) set() watcher.Set {
	return watcher.Set{Source: config.SourceFile, Pods: c.pods, Objects: c.objects, Workloads: c.workloads, Inputs: c.reports}
}

// staged is a watcher.Source with fixed content, which can be emptied once.
type staged struct {
	set     watcher.Set
	emptied chan struct{}
}

// NewStaged returns a source with fixed content.
func NewStaged(c *Content) *staged { return &staged{set: c.set(), emptied: make(chan struct{})} }

// Name implements watcher.Source.
func (s *staged) Name() string { return config.SourceFile }

// Prompt reports that the first Set is sent without delay.
func (s *staged) Prompt() bool { return true }

// Run implements watcher.Source.
func (s *staged) Run(ctx context.Context, out chan<- watcher.Set) error {
	if send(ctx, out, s.set) {
		select {
		case <-ctx.Done():
		case <-s.emptied:
			if send(ctx, out, watcher.Set{Source: config.SourceFile}) {
				<-ctx.Done()
			}
		}
	}
	return nil
}

func send(ctx context.Context, out chan<- watcher.Set, set watcher.Set) bool {
	select {
	case <-ctx.Done():
		return false
	case out <- set:
		return true
	}
}

// stage is the daemon of a run, with its pods.
type stage struct {
	p      *program.Program
	slot   *Slot
	cfg    *config.Loaded
	daemon *daemon.Daemon
	source *staged
	log    *os.File
	logger *slog.Logger
	stop   context.CancelFunc
	// ended receives the result of Daemon.Run.
	ended chan error
	// broken receives the error of opening the runtime.
	broken chan error
	// fresh: the slot was empty before this run. opened: the runtime was opened, so there may be pods.
	fresh  bool
	opened atomic.Bool
	grace  time.Duration
	// ports are the reserved host ports, until the end of the run.
	ports []io.Closer
	// views are the pods at the last look of wait.
	views []trial.View
}

// newStage starts the daemon of a run in a locked slot. It runs until end is called, even if ctx ends.
func (p Commands) newStage(ctx context.Context, s *Slot, cfg *config.Loaded, c *Content) (*stage, error) {
	if err := s.Write(cfg); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.Root, RunLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	g := &stage{p: p.Program, slot: s, cfg: cfg, source: NewStaged(c), log: f, ended: make(chan error, 1), broken: make(chan error, 1)}
	for _, pod := range c.pods {
		g.allow(&pod.Object.Spec)
	}
	for _, w := range c.workloads {
		if t := template(w); t != nil {
			g.allow(&t.Spec)
		}
	}
	m := p.Machine
	failures := 0
	m.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
		rt, err := p.Machine.Open(ctx, cfg, deps)
		switch failures++; {
		case err == nil:
			g.opened.Store(true)
		case failures == MaxOpenFailures:
			g.broken <- err
		}
		return rt, err
	}
	g.logger = daemon.NewLogger(f, cfg.Logging)
	if g.daemon, err = daemon.OpenRun(cfg, daemon.Deps{Log: g.logger, Machine: m}, g.source); err != nil {
		f.Close()
		return nil, err
	}
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { g.ended <- g.daemon.Run(ctx) }()
	return g, nil
}

// allow extends the time for removal to the grace period of a pod.
func (g *stage) allow(spec *corev1.PodSpec) {
	t := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if spec.TerminationGracePeriodSeconds != nil {
		t = *spec.TerminationGracePeriodSeconds
	}
	g.grace = max(g.grace, time.Duration(t)*time.Second)
}

// waitLimits limits wait.
type waitLimits struct {
	timeout time.Duration
	// failFast ends wait when one pod has failed.
	failFast bool
}

// wait follows the pods until each has a result, the timeout is over, or ctx ends. An error means that the run cannot
// continue.
func (g *stage) wait(ctx context.Context, t *trial.Trial, w waitLimits) (trial.Report, error) {
	changed, cancel := g.daemon.State.Subscribe()
	defer cancel()
	var deadline <-chan time.Time
	if w.timeout > 0 {
		timer := time.NewTimer(w.timeout)
		defer timer.Stop()
		deadline = timer.C
	}
	again := time.NewTimer(pause.FarAway)
	defer again.Stop()
	for {
		report, next, visible := g.look(t)
		if visible && (report.Decided() || w.failFast && report.Result == trial.Failed) {
			return report, nil
		}
		if !next.IsZero() {
			again.Reset(time.Until(next))
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			report.Result = trial.Interrupted
			return report, nil
		case <-deadline:
			if report, _, _ = g.look(t); report.Result == trial.Waiting {
				report.Result = trial.TimedOut
			}
			return report, nil
		case err := <-g.broken:
			g.broken <- err
			return report, fmt.Errorf("containers cannot be run: %w", err)
		case err := <-g.ended:
			g.ended <- err
			return report, errors.Join(errors.New("the agent of the run has exited"), err)
		}
	}
}

// look evaluates the pods; visible is false while containers cannot be seen.
func (g *stage) look(t *trial.Trial) (r trial.Report, next time.Time, visible bool) {
	jobs := g.daemon.State.Workloads.Finished() // before the pods: those of a Job that has ended are seen as they came out
	pods, err := g.daemon.State.Pods()
	g.views = g.views[:0]
	for _, v := range pods {
		g.views = append(g.views, trial.View{Pod: v.Pod, Why: v.Why, Failing: v.Failing})
	}
	r, next = t.Look(time.Now(), g.views, jobs)
	if err != nil {
		r.Result, r.Reason = trial.Waiting, err.Error()
	}
	r.Run = trial.Run{Number: g.slot.number, Socket: g.cfg.Socket, Subnet: g.cfg.PodCIDR, Log: g.log.Name()}
	return r, next, err == nil
}

// end stops the daemon. The pods keep running.
func (g *stage) end() error {
	g.stop()
	err := <-g.ended
	g.daemon.Close()
	for _, f := range g.ports {
		f.Close()
	}
	return err
}

// remove removes the pods, then everything else of the run. It continues if ctx ends.
func (g *stage) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalPatience+g.grace)
	defer cancel()
	close(g.source.emptied)
	var err error
	if g.fresh && !g.opened.Load() { // there was nothing to make pods with
		err = g.end()
	} else if err = errors.Join(g.gone(ctx), g.end()); err == nil {
		err = NewCommands(g.p).giveBack(ctx, g.cfg, g.logger)
	}
	err = errors.Join(err, g.log.Close())
	if err == nil {
		err = g.slot.clear()
	}
	if err != nil {
		return fmt.Errorf("remove run %d (see %s; `monopod cleanup` retries): %w", g.slot.number, g.log.Name(), err)
	}
	return nil
}

// gone waits until all pods are removed.
func (g *stage) gone(ctx context.Context) error {
	changed, cancel := g.daemon.State.Subscribe()
	defer cancel()
	again := time.NewTicker(daemon.PollInterval)
	defer again.Stop()
	for !g.daemon.State.Empty() {
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			return errors.New("the pods do not terminate")
		case err := <-g.broken:
			return err
		case err := <-g.ended:
			g.ended <- err
			return errors.Join(errors.New("the agent has exited"), err)
		}
	}
	return nil
}
