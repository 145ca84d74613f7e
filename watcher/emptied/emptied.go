// Package emptied has sources that can be emptied at the end of a run: a fixed one, and a wrapper of another source.
//
// It must not remove pods: the caller of Empty waits until they are gone.
//
// Goroutines: Source.Run runs the wrapped source in one, and waits for it.
package emptied

import (
	"context"
	"errors"
	"sync"

	"monopod/watcher"
)

// Source is a watcher.Source that can be emptied.
type Source struct {
	name    string
	run     func(ctx context.Context, out chan<- watcher.Set) error
	emptied chan struct{}
	empty   func()
}

func newSource(name string, run func(context.Context, chan<- watcher.Set) error) *Source {
	s := &Source{name: name, run: run, emptied: make(chan struct{})}
	s.empty = sync.OnceFunc(func() { close(s.emptied) })
	return s
}

// Fixed returns a source with the content of a set.
func Fixed(set watcher.Set) *Source {
	return newSource(set.Source, func(ctx context.Context, out chan<- watcher.Set) error {
		send(ctx, out, set)
		<-ctx.Done()
		return nil
	})
}

// Of returns a source with the content of another one, which is read from disk.
func Of(other watcher.Source) *Source { return newSource(other.Name(), other.Run) }

// Empty empties the source permanently.
func (s *Source) Empty() { s.empty() }

// Name implements watcher.Source.
func (s *Source) Name() string { return s.name }

// Prompt reports that the first Set is sent without delay.
func (s *Source) Prompt() bool { return true }

// Run implements watcher.Source.
func (s *Source) Run(ctx context.Context, out chan<- watcher.Set) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.run(inner, out) }()
	select {
	case err := <-ended:
		return err
	case <-s.emptied:
	}
	cancel()
	if err := <-ended; err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		return err
	}
	send(ctx, out, watcher.Set{Source: s.name})
	<-ctx.Done()
	return nil
}

func send(ctx context.Context, out chan<- watcher.Set, set watcher.Set) {
	select {
	case <-ctx.Done():
	case out <- set:
	}
}
