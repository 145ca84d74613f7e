// Package taskwatch notifies the watchers of pods that something happened to one. It must not know what it was.
package taskwatch

import (
	"context"
	"sync"

	"monopod/manifests"
)

// Watchers passes notifications on to all callers of Follow.
type Watchers struct {
	mu    sync.Mutex
	next  int
	funcs map[int]func(manifests.Key)
	// missed is set if something happened without a watcher.
	missed bool
}

// New returns empty Watchers.
func New() *Watchers { return &Watchers{funcs: map[int]func(manifests.Key){}} }

func (w *Watchers) add(f func(manifests.Key)) (remove func(), missed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.funcs[id] = f
	missed, w.missed = w.missed, false
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.funcs, id)
	}, missed
}

// Notify calls the functions of all watchers; the zero Key stands for every pod.
func (w *Watchers) Notify(key manifests.Key) {
	w.mu.Lock()
	funcs := make([]func(manifests.Key), 0, len(w.funcs))
	for _, f := range w.funcs {
		funcs = append(funcs, f)
	}
	if len(funcs) == 0 {
		w.missed = true
	}
	w.mu.Unlock()
	for _, f := range funcs {
		f(key)
	}
}

// Follow calls notify for each key until ctx ends, first with the zero Key if a notification had no watcher.
func (w *Watchers) Follow(ctx context.Context, notify func(manifests.Key)) error {
	remove, missed := w.add(notify)
	defer remove()
	if missed {
		notify(manifests.Key{})
	}
	<-ctx.Done()
	return nil
}
