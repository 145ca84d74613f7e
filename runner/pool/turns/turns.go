// Package turns lets a limited number of pods work concurrently, the most important ones first.
//
// It must not know pods. It starts no goroutines.
package turns

import (
	"cmp"
	"slices"
	"sync"
)

// Turns lets a limited number of pods work concurrently: of those that wait, the one with the highest priority first, then the one that has
// waited longest. A pod with a priority below the floor waits even if there is room.
type Turns struct {
	mu sync.Mutex
	// All fields below are guarded by mu.
	free    int
	waiting []*Ticket
	floor   int32
	floored bool
}

// Ticket is a place, or the wait for one.
type Ticket struct {
	of       *Turns
	priority int32
	// Granted is closed when the ticket becomes a place.
	Granted chan struct{}
}

// New returns turns for n pods at a time.
func New(n int) *Turns { return &Turns{free: n} }

// Ask returns a ticket. It must be released, whether or not it has been granted.
func (t *Turns) Ask(priority int32) *Ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &Ticket{of: t, priority: priority, Granted: make(chan struct{})}
	// After all tickets of the same priority.
	at, _ := slices.BinarySearchFunc(t.waiting, priority, func(w *Ticket, p int32) int {
		if w.priority == p {
			return -1
		}
		return cmp.Compare(p, w.priority)
	})
	t.waiting = slices.Insert(t.waiting, at, k)
	t.grantLocked()
	return k
}

// Release releases a place, or ends the wait for one.
func (k *Ticket) Release() {
	t := k.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, k); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		return
	}
	t.free++
	t.grantLocked()
}

// SetFloor makes pods of lower priorities wait; if known is false, there is no floor.
func (t *Turns) SetFloor(floor int32, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.floor, t.floored = floor, known
	t.grantLocked()
}

func (t *Turns) grantLocked() {
	for t.free > 0 && len(t.waiting) > 0 && (!t.floored || t.waiting[0].priority >= t.floor) {
		close(t.waiting[0].Granted)
		t.waiting = slices.Delete(t.waiting, 0, 1)
		t.free--
	}
}
