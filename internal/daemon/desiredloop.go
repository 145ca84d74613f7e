package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/daemon/nodeevents"
	"monopod/internal/daemon/outlook"
	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/watcher"
	"monopod/watcher/applied"
	"monopod/watcher/fetch"
)

// retryApplied is how often an unfinished change of applied objects is tried again.
const retryApplied = time.Minute

// desiredLoop watches the sources and publishes what they desire.
type desiredLoop struct {
	log     *slog.Logger
	watcher *watcher.Watcher
	applied *applied.Store
	events  *nodeevents.Recorder
	// publish receives each desired state.
	publish func(model.Desired)
	outlook *outlook.Outlook
	// inputs and copies are used by the goroutine of the watcher only. copies is the directory of the cached answers of URLs, until those of
	// removed sources are removed.
	inputs *nodeevents.Inputs
	copies string
}

func newDesiredLoop(c *core, sources []watcher.Source) *desiredLoop {
	return &desiredLoop{
		log: c.deps.Log, watcher: watcher.New(c.deps.Log, sources...), applied: c.applied, events: c.events, inputs: nodeevents.NewInputs(c.events),
		publish: func(d model.Desired) { c.state.Publish(d); c.memory.Touch() }, outlook: outlook.New(c.deps.Log, c.state.Spaces, c.cfg.NodeName), copies: c.cfg.CopiesDirectory(),
	}
}

// run works until ctx ends.
func (l *desiredLoop) run(ctx context.Context) error {
	logged := l.openApplied("") // before the directory is read
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.watcher.Run(ctx, l.take) })
	g.Go(func() error { return l.outlook.Run(ctx) })
	g.Go(func() error {
		for pause.For(ctx, retryApplied); ctx.Err() == nil; pause.For(ctx, retryApplied) {
			logged = l.openApplied(logged)
		}
		return nil
	})
	return g.Wait()
}

// openApplied finishes a stored change of applied objects, if there is one. It logs an error unless its text is the one given, and returns the text.
func (l *desiredLoop) openApplied(logged string) string {
	err := l.applied.Open()
	if err == nil {
		return ""
	}
	if lost, ok := errors.AsType[*applied.DamagedError](err); ok {
		l.events.AppliedLost(lost)
		return ""
	}
	if err.Error() != logged {
		l.log.Error("applied objects cannot be read or changed", "err", err)
	}
	return err.Error()
}

// take records the reports of a desired state, and publishes it.
func (l *desiredLoop) take(d model.Desired) {
	l.inputs.Record(d.Inputs)
	l.removeCopies(d)
	l.publish(d)
	l.outlook.Take(d)
}

// removeCopies removes the cached answers of sources that are no longer configured, once the pods of such sources may be removed.
func (l *desiredLoop) removeCopies(d model.Desired) {
	if l.copies != "" && d.Complete() {
		if err := fetch.RemoveCopies(l.copies, d.Order); err != nil {
			l.log.Warn("remove the cached answers of removed sources", "err", err)
		}
		l.copies = ""
	}
}
