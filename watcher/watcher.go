package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/cause"
	"monopod/internal/model"
)

// Restart delays of a source that failed; the delay starts over after it has run for longer than the last one.
const (
	firstRestart = time.Second
	lastRestart  = time.Minute
)

// promptPatience bounds how long the first call waits for prompt sources. Running pods are safe without it, by Desired.Keeps; it is for
// pods that do not run yet.
const promptPatience = time.Second

// Watcher runs sources and publishes what they want together.
type Watcher struct {
	log     *slog.Logger
	sources []Source
	order   []string
	// changed holds a token when sets or faults changed since the last publish.
	changed chan struct{}
	// beat receives a value in each turn of the publishing loop, if a caller waits.
	beat chan struct{}

	mu sync.Mutex
	// sets is the last Set of each source, faults the last failure of those that do not run.
	sets   map[string]Set
	faults map[string]model.Input
}

// New makes a Watcher. Earlier sources win over later ones.
func New(log *slog.Logger, sources ...Source) *Watcher {
	w := &Watcher{
		log: log, sources: sources, changed: make(chan struct{}, 1), beat: make(chan struct{}),
		sets: map[string]Set{}, faults: map[string]model.Input{},
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	for _, s := range sources {
		w.order = append(w.order, s.Name())
	}
	return w
}

// Run starts all sources and calls publish with everything that is wanted whenever that changed, until ctx ends.
// The first call comes as soon as one source has sent something, and those have that are read from the disk. Calls never overlap; while one is under way newer
// content replaces older, so publish may take its time.
func (w *Watcher) Run(ctx context.Context, publish func(model.Desired)) error {
	if err := w.check(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, src := range w.sources {
		g.Go(func() error {
			w.supervise(ctx, src)
			return nil
		})
	}
	g.Go(func() error {
		w.publish(ctx, publish)
		return nil
	})
	return g.Wait()
}

// Beat waits for one turn of the publishing loop. Returns an error if ctx ends first.
func (w *Watcher) Beat(ctx context.Context) error {
	select {
	case <-w.beat:
		return nil
	case <-ctx.Done():
		return errors.New("the source loop does not respond")
	}
}

func (w *Watcher) check() error {
	seen := map[string]bool{}
	for _, name := range w.order {
		if seen[name] {
			return fmt.Errorf("start sources: two sources are named %q", name)
		}
		seen[name] = true
	}
	return nil
}

// publish hands over the merged content on each change until ctx ends.
func (w *Watcher) publish(ctx context.Context, publish func(model.Desired)) {
	var last model.Desired
	patience := time.NewTimer(promptPatience)
	defer patience.Stop()
	patient := true
	for first := true; ; {
		select {
		case <-ctx.Done():
			return
		case w.beat <- struct{}{}:
			continue
		case <-patience.C:
			patient = false
		case <-w.changed:
		}
		if first && !w.ready(patient) {
			continue
		}
		d := w.desired()
		if !first && sameDesired(last, d) {
			continue
		}
		first, last = false, d
		publish(d)
	}
}

// ready reports whether there is something to publish. While patient, all sources on disk must have been read.
func (w *Watcher) ready(patient bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, src := range w.sources {
		p, ok := src.(prompt)
		_, sent := w.sets[src.Name()]
		_, failed := w.faults[src.Name()]
		if patient && ok && p.Prompt() && !sent && !failed {
			return false
		}
	}
	return len(w.sets)+len(w.faults) > 0
}

// desired merges the sets of this moment and adds the sources that do not run.
func (w *Watcher) desired() model.Desired {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := Merge(w.order, w.sets)
	for _, name := range w.order {
		if fault, ok := w.faults[name]; ok {
			d.Inputs = append(d.Inputs, fault)
		}
	}
	return d
}

// update runs f on the state and asks for a publish.
func (w *Watcher) update(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default: // a publish is due already and will see this change too
	}
}

// supervise runs one source and starts it again whenever it stops before ctx ends. What it sent last stays valid.
func (w *Watcher) supervise(ctx context.Context, src Source) {
	name := src.Name()
	delay := firstRestart
	for {
		start := time.Now()
		err := w.runOnce(ctx, src)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > delay {
			delay = firstRestart
		}
		w.log.Error("source stopped", "source", name, "err", err, "retry_in", delay)
		w.update(func() {
			w.faults[name] = model.Input{Source: name, Input: name, State: model.InputUnreachable, Errors: Lines(err), Cause: cause.Cause{Kind: cause.InputUnreachable}, Since: time.Now()}
		})
		if !Pause(ctx, delay) {
			return
		}
		delay = min(2*delay, lastRestart)
	}
}

// runOnce runs a source until it returns and stores what it sends.
func (w *Watcher) runOnce(ctx context.Context, src Source) error {
	out, done := make(chan Set), make(chan error, 1)
	go func() { done <- w.contain(ctx, src, out) }()
	for {
		select {
		case set := <-out:
			set.Source = src.Name()
			w.update(func() {
				w.sets[set.Source] = set
				delete(w.faults, set.Source)
			})
		case err := <-done:
			return err
		}
	}
}

var errStopped = errors.New("stopped unexpectedly")

// contain turns a panic of a source, and an unexpected return, into an error.
func (w *Watcher) contain(ctx context.Context, src Source, out chan<- Set) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("source panicked", "source", src.Name(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("run source %s: panic: %v", src.Name(), p)
		}
	}()
	if err := src.Run(ctx, out); err != nil {
		return fmt.Errorf("run source %s: %w", src.Name(), err)
	}
	return fmt.Errorf("run source %s: %w", src.Name(), errStopped)
}

// Pause waits for d and reports whether ctx is still alive.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Send hands over a set, unless ctx ends before it is taken.
func Send(ctx context.Context, out chan<- Set, set Set) {
	select {
	case out <- set:
	case <-ctx.Done():
	}
}

// prompt is a Source that may be able to send its first Set without waiting for a server, and whether it is. Nothing is published before
// all prompt sources have sent one: a pod must not be started from a source of lower precedence if one of them has it too.
type prompt interface{ Prompt() bool }
