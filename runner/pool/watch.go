package pool

import (
	"context"
	"crypto/rand"
	"fmt"
	"sort"

	"monopod/manifests"
	"monopod/runner/podstatus"
)

// Change is a pod whose status has changed.
type Change struct {
	Key manifests.Key
	// Status is the current status, or the last one if Gone is set.
	Status podstatus.Status
	// Gone reports that the pod has been removed.
	Gone bool
}

// Subscription keeps, for one reader, the latest unread change of each pod.
type Subscription struct {
	pool    *registry
	pending map[manifests.Key]Change // guarded by Pool.mu
	wake    chan struct{}
}

// Subscribe begins to follow the pods: a pod that is removed between Subscribe and Watch is reported as gone. Watch must be called; it ends
// the subscription.
func (p *registry) Subscribe() *Subscription {
	s := &Subscription{pool: p, pending: map[manifests.Key]Change{}, wake: make(chan struct{}, 1)}
	p.subscribe(s)
	return s
}

// Watch calls fn for every existing pod, sorted, and then for every change, until ctx ends or fn returns an error, which it returns. A slow
// fn misses intermediate states of a pod, never the latest.
func (s *Subscription) Watch(ctx context.Context, fn func(Change) error) error {
	defer s.pool.unsubscribe(s)
	for {
		for _, c := range s.pool.take(s) {
			if err := fn(c); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
	}
}

// Watch follows the pods from now on; see Subscription.Watch.
func (p *registry) Watch(ctx context.Context, fn func(Change) error) error {
	return p.Subscribe().Watch(ctx, fn)
}

func (p *registry) subscribe(w *Subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[w] = struct{}{}
	for key, e := range p.entries {
		if e.report.status.Pod != nil {
			w.pending[key] = Change{Key: key, Status: e.report.status}
		}
	}
}

func (p *registry) unsubscribe(w *Subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watchers, w)
}

func (p *registry) take(w *Subscription) []Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Change, 0, len(w.pending))
	for _, c := range w.pending {
		all = append(all, c)
	}
	clear(w.pending)
	sort.Slice(all, func(i, j int) bool { return all[i].Key.Compare(all[j].Key) < 0 })
	return all
}

// setStatusLocked stores a status and notifies the watchers if it has changed.
func (p *Pool) setStatusLocked(e *entry, s podstatus.Status) {
	old, key := e.report.status, e.worker.key
	e.report.status = s
	if len(p.watchers) == 0 || old.Pod != nil && old.Equal(s) {
		return
	}
	for w := range p.watchers {
		w.pending[key] = Change{Key: key, Status: s}
		signal(w.wake)
	}
}

// goneLocked notifies the watchers that a pod has been removed.
func (p *registry) goneLocked(key manifests.Key, last podstatus.Status) {
	for w := range p.watchers {
		w.pending[key] = Change{Key: key, Status: last, Gone: true}
		signal(w.wake)
	}
}

// newUID returns a random uid in the usual notation (RFC 9562, version 4).
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
