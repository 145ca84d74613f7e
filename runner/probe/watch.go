package probe

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
)

// Health is the combined result of the probes of a container.
type Health struct {
	// Started reports that the startup probe has succeeded, or that there is none.
	Started bool
	// Ready reports that it has started, and that its readiness probe, if any, succeeds.
	Ready bool
	// Since is the time of the latest startup or readiness result that counts; zero if the container has neither probe.
	Since time.Time
	// Failed is set if the container must be stopped.
	Failed *Verdict
}

// Verdict is why a container must be stopped.
type Verdict struct {
	Kind   Kind
	Output string
	Fault  cause.Fault
}

// count adds an attempt with result r.
func count(c *model.ProbeCounts, r Result, took time.Duration) {
	switch r {
	case Success, Warning:
		c.Successful++
	case Failure:
		c.Failed++
		return
	default:
		c.Unknown++
	}
	c.Took += took
	for i, bound := range model.ProbeBounds() {
		if took.Seconds() <= bound {
			c.Buckets[i]++
			return
		}
	}
}

// Known is the probe state of a running container from an earlier agent.
type Known struct {
	Started, Ready bool
}

// Options configure a Watch.
type Options struct {
	Target Target
	// StartedAt is when the container's process started.
	StartedAt time.Time
	// Known is set for a container that was running before this agent, or was probed with another definition.
	Known *Known
	// Changed is called when Health may have changed, from goroutines of the Watch.
	Changed func()
	// Report, if not nil, receives each outcome other than Success.
	Report func(Kind, Outcome)
	// Group counts the goroutines.
	Group *sync.WaitGroup
}

// Watch runs the probes of one running container until it is stopped.
//
//	startup: ask ... success --> liveness: ask ... failure --> Verdict, end of probing
//	                        \--> readiness: ask ... until stopped
type Watch struct {
	o    Options
	stop context.CancelFunc

	mu sync.Mutex
	// All fields below are guarded by mu.
	stopped                      bool
	startup, liveness, readiness *prober
}

// prober is one probe of a Watch; the fields after handler are guarded by Watch.mu.
type prober struct {
	Config
	handler handler
	state   State
	counts  model.ProbeCounts
	timer   *time.Timer
	// counted is set while Options.Group waits for it: until its last attempt is over.
	counted bool
}

// Has reports whether a container has probes.
func Has(c *corev1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

// Start starts probing. ctx ends attempts in progress, as Stop does.
func Start(ctx context.Context, o Options) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	c := o.Target.Container
	w := &Watch{
		o: o, stop: cancel,
		startup:   newProber(Startup, c.StartupProbe, o.Target),
		liveness:  newProber(Liveness, c.LivenessProbe, o.Target),
		readiness: newProber(Readiness, c.ReadinessProbe, o.Target),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	before := Unknown
	if o.Known != nil && o.Known.Started {
		before = Success
	}
	w.beginLocked(ctx, w.startup, now, before)
	if w.startedLocked() {
		w.beginRestLocked(ctx, now)
	}
	w.o.Known = nil // probes that begin later have no earlier result
	return w
}

func newProber(kind Kind, p *corev1.Probe, t Target) *prober {
	if p == nil {
		return nil
	}
	return &prober{Config: configOf(kind, p), handler: newHandler(p.ProbeHandler, t)}
}

func (w *Watch) startedLocked() bool { return w.startup == nil || w.startup.state.Result == Success }

// grid is the interval that attempts are aligned to: attempts of many probes then share a wake-up of the process, which costs as much as an
// attempt.
const grid = 50 * time.Millisecond

// beginRestLocked starts the probes that wait for the startup probe.
func (w *Watch) beginRestLocked(ctx context.Context, now time.Time) {
	before := Unknown
	if w.o.Known != nil && w.o.Known.Ready {
		before = Success
	}
	w.beginLocked(ctx, w.liveness, now, Unknown)
	w.beginLocked(ctx, w.readiness, now, before)
}

// beginLocked starts a probe. The first attempt of one that was found healthy is delayed: otherwise all containers of a node would be
// probed at once when the agent starts.
func (w *Watch) beginLocked(ctx context.Context, p *prober, now time.Time, before Result) {
	if p == nil {
		return
	}
	spread := 0.0
	if w.o.Known != nil && (before == Success || p == w.liveness && w.o.Known.Started) {
		spread = rand.Float64() //nolint:gosec // spreads load, nothing secret
	}
	p.state = p.First(w.o.StartedAt, now, before, spread)
	w.scheduleLocked(ctx, p, now)
}

func (w *Watch) scheduleLocked(ctx context.Context, p *prober, now time.Time) {
	if p.state.Due.IsZero() || w.stopped {
		return
	}
	wait := p.state.Due.Sub(now)
	if wait > 0 {
		wait += p.state.Due.Add(grid - 1).Truncate(grid).Sub(p.state.Due)
	}
	if !p.counted {
		p.counted = true
		w.o.Group.Add(1)
	}
	switch {
	case wait <= 0:
		go w.ask(ctx, p)
	case p.timer != nil:
		p.timer.Reset(wait)
	default:
		p.timer = time.AfterFunc(wait, func() { w.ask(ctx, p) })
	}
}

// ask makes one attempt and records it.
func (w *Watch) ask(ctx context.Context, p *prober) {
	began := time.Now()
	o := attempt(ctx, p.handler, p.Timeout)
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		w.o.Group.Done()
		return
	}
	now := time.Now()
	before := w.healthLocked()
	p.state = p.Next(p.state, began, now, o)
	count(&p.counts, o.Result, now.Sub(began))
	if p == w.startup && w.startedLocked() {
		w.beginRestLocked(ctx, now)
	}
	over := p.state.Due.IsZero()
	w.scheduleLocked(ctx, p, now)
	changed := !before.same(w.healthLocked())
	w.mu.Unlock()
	if o.Result != Success && w.o.Report != nil {
		w.o.Report(p.Kind, o)
	}
	if changed {
		w.o.Changed()
	}
	if over {
		w.o.Group.Done()
	}
}

// Stop ends it. Attempts in progress are canceled and do not count.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	w.stop()
	for _, p := range w.all() {
		if p.timer != nil && p.timer.Stop() {
			w.o.Group.Done()
		}
	}
}

// all returns the existing probes.
func (w *Watch) all() []*prober {
	all := make([]*prober, 0, 3)
	for _, p := range []*prober{w.startup, w.liveness, w.readiness} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// Health returns the current health.
func (w *Watch) Health() Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.healthLocked()
}

func (w *Watch) healthLocked() Health {
	h := Health{Started: w.startedLocked()}
	h.Ready = h.Started && (w.readiness == nil || w.readiness.state.Result == Success)
	for _, p := range []*prober{w.startup, w.readiness} {
		if p != nil && p.state.Since.After(h.Since) {
			h.Since = p.state.Since.UTC().Round(0)
		}
	}
	for _, p := range []*prober{w.startup, w.liveness} {
		if p != nil && p.state.Result == Failure {
			h.Failed = &Verdict{Kind: p.Kind, Output: p.state.Last.Output, Fault: p.state.Last.Fault}
		}
	}
	return h
}

func (h Health) same(o Health) bool {
	return h.Started == o.Started && h.Ready == o.Ready && (h.Failed == nil) == (o.Failed == nil)
}

// Statuses returns the state of each probe that has begun, by kind.
func (w *Watch) Statuses() []model.Probe {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []model.Probe
	for _, p := range []*prober{w.liveness, w.readiness, w.startup} {
		if p == nil || p.state.Since.IsZero() {
			continue
		}
		s := model.Probe{
			Container: w.o.Target.Container.Name, Kind: string(p.Kind), Result: string(p.state.Result), Threshold: p.FailureThreshold,
			Last: p.state.At.UTC().Truncate(time.Second), Next: p.state.Due.UTC().Truncate(time.Second), Counts: p.counts,
		}
		if p.state.Failing() {
			s.Failures = p.state.Run
		}
		if last := p.state.Last; last.Result != Success {
			s.Output, s.Fault = last.Output, last.Fault
		}
		out = append(out, s)
	}
	return out
}
