package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/internal/progress"
	"monopod/internal/run/shown"
	"monopod/internal/trial"
	"monopod/manifests"
	"monopod/node/localclient"
	"monopod/watcher"
	"monopod/watcher/emptied"
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

// Set returns the content as a Set of the file source, from which the pods kept by `once` are read.
func (c *Content) Set() watcher.Set {
	return watcher.Set{Source: config.SourceFile, Pods: c.pods, Objects: c.objects, Workloads: c.workloads, Inputs: c.reports}
}

// stage is the daemon of a run, with its pods.
type stage struct {
	p      Commands
	slot   *Slot
	cfg    *config.Loaded
	daemon *daemon.Daemon
	source *emptied.Source
	set    watcher.Set
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
	// kubeconfig is the file for clients of the Kubernetes API; empty without an API.
	kubeconfig string
	// served reports that the API has been ready once.
	served bool
	// shorten, unless nil, limits the grace periods of pods that API clients created.
	shorten *int64
	// quiet disables progress.
	quiet bool
	// views are the pods at the last look of wait.
	views []trial.View
}

// openFunc is daemon.OpenRun or daemon.OpenCluster.
type openFunc func(*config.Loaded, daemon.Deps, watcher.Source) (*daemon.Daemon, error)

// newStage starts the daemon of a run in a locked slot. It runs until end is called, even if ctx ends.
func (p Commands) newStage(ctx context.Context, s *Slot, cfg *config.Loaded, c *Content, open openFunc) (*stage, error) {
	if err := s.Write(cfg); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.Root, RunLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	g := &stage{p: p, slot: s, cfg: cfg, source: emptied.Fixed(c.Set()), set: c.Set(), log: f, ended: make(chan error, 1), broken: make(chan error, 1)}
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
	if g.daemon, err = open(cfg, daemon.Deps{Log: g.logger, Machine: m}, g.source); err != nil {
		f.Close()
		return nil, err
	}
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.Signals.AtEnd(g.left)
	go func() { g.ended <- g.daemon.Run(ctx) }()
	return g, nil
}

// left prints what a run leaves whose process ends at once, and how to remove that.
func (g *stage) left() {
	remove := "monopod cleanup"
	if g.slot.Kept() {
		remove = fmt.Sprintf("monopod down %d", g.slot.number)
	}
	pods, _ := g.daemon.State.Pods() // the error is why not all of them can be seen
	names := make([]string, 0, len(pods))
	for _, v := range pods {
		names = append(names, v.Pod.Namespace+"/"+v.Pod.Name)
	}
	slices.Sort(names)
	text := cmp.Or(strings.Join(names, ", "), "none is known")
	g.p.Errs().Printf("monopod: interrupted again; run %d is left with its pods (%s): `%s` removes it\n", g.slot.number, text, remove)
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
	out := g.p.Progress(ctx, g.quiet, func(ctx context.Context, r *progress.Reporter) { shown.Pulls(ctx, r, localclient.New(g.cfg.Socket)) })
	defer out.Stop()
	for {
		report, next, visible := g.look(t)
		shown.Waiting(out, &report)
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
	if err == nil && !g.serves() {
		err = errors.New("the Kubernetes API has not started yet")
	}
	if err != nil {
		r.Result, r.Reason = trial.Waiting, err.Error()
	}
	r.Run = trial.Run{Number: g.slot.number, Socket: g.cfg.Socket, Subnet: g.cfg.PodCIDR, Log: g.log.Name(), Kubeconfig: g.kubeconfig}
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
	g.allowAll()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalPatience+g.grace)
	defer cancel()
	g.daemon.Forget()
	g.source.Empty()
	var err error
	if g.fresh && !g.opened.Load() { // there was nothing to make pods with
		err = g.end()
	} else if err = errors.Join(g.gone(ctx), g.end()); err == nil {
		err = g.p.giveBack(ctx, g.cfg, g.logger)
	}
	err = errors.Join(err, g.log.Close())
	if err == nil {
		err = g.slot.clear()
	}
	g.p.Signals.AtEnd(nil)
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
	out := g.p.Progress(ctx, g.quiet, func(_ context.Context, r *progress.Reporter) {
		pods, _ := g.daemon.State.Pods() // the error is why not all of them can be seen
		shown.Removal(r, pods)
	})
	defer out.Stop()
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
