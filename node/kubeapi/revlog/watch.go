package revlog

import (
	"cmp"
	"context"
	"slices"

	"monopod/node/kubeapi/kinds"
)

// Event is a change: Old is nil for created objects, New for deleted ones. Both are shared and must not be modified. New carries Revision,
// Old its previous revision.
type Event struct {
	Revision uint64
	Old, New kinds.Object
}

// Watch reads the changes of a kind. It must be used by one goroutine.
type Watch struct {
	log     *Log
	kind    *kinds.Kind
	at      uint64
	changed <-chan struct{}
	cancel  func()
}

// Watch returns a Watch of the changes of a kind after a revision, which usually comes from a list. It fails with ErrExpired or
// ErrTooLarge, and for kinds that were never read. The caller must call Close.
func (l *Log) Watch(ctx context.Context, k *kinds.Kind, from uint64) (*Watch, error) {
	w := &Watch{log: l, kind: k, at: from}
	// Subscribe before the comparison, so that no change is lost in between.
	w.changed, w.cancel = l.source.Subscribe()
	err := l.sync(ctx)
	if err == nil {
		err = l.check(k, from)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (l *Log) check(k *kinds.Kind, from uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, err := l.ofLocked(k)
	switch {
	case err != nil:
		return err
	case from > l.revision:
		return ErrTooLarge
	case from < l.dropped, of != nil && from < of.since:
		return ErrExpired
	}
	return nil
}

// Next waits for changes and returns them in order. It fails with ErrExpired once the log has dropped changes that the watch has not read.
func (w *Watch) Next(ctx context.Context) ([]Event, error) {
	for {
		events, more, err := w.read()
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-more: // another caller has compared
		case _, open := <-w.changed:
			if !open {
				w.changed = nil
			}
			if err := w.log.sync(ctx); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read returns the changes after the position of the watch, and a channel that is closed when more are added.
func (w *Watch) read() (events []Event, more <-chan struct{}, err error) {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.at < l.dropped {
		return nil, nil, ErrExpired
	}
	start, found := slices.BinarySearchFunc(l.changes, w.at, func(c change, at uint64) int { return cmp.Compare(c.Revision, at) })
	if found {
		start++
	}
	size := 0
	for _, c := range l.changes[start:] {
		if c.kind != w.kind {
			continue
		}
		if size += c.oldSize + c.newSize; size > maxBatch && len(events) > 0 {
			w.at = events[len(events)-1].Revision
			return events, l.appended, nil
		}
		events = append(events, c.Event)
	}
	w.at = l.revision
	return events, l.appended, nil
}

// Revision is the revision up to which Next has returned all changes.
func (w *Watch) Revision() uint64 { return w.at }

// Close ends the watch.
func (w *Watch) Close() { w.cancel() }
