package pool

import (
	"cmp"
	"slices"
	"sync"
)

// turns lets a limited number of pods work at the same time, and of those that wait the one with the highest priority first, then the one
// that has waited longest. A pod of a lower priority than the floor waits even if there is room.
type turns struct {
	mu sync.Mutex
	// All below is guarded by mu.
	free    int
	waiting []*ticket
	floor   int32
	floored bool
}

// ticket is a place, or the wait for one.
type ticket struct {
	of       *turns
	priority int32
	// granted is closed when it is a place.
	granted chan struct{}
}

func newTurns(n int) *turns { return &turns{free: n} }

// ask returns a ticket, which must be released, whether it has been granted or not.
func (t *turns) ask(priority int32) *ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &ticket{of: t, priority: priority, granted: make(chan struct{})}
	// Behind all that have the same priority.
	at, _ := slices.BinarySearchFunc(t.waiting, priority, func(w *ticket, p int32) int {
		if w.priority == p {
			return -1
		}
		return cmp.Compare(p, w.priority)
	})
	t.waiting = slices.Insert(t.waiting, at, k)
	t.grantLocked()
	return k
}

// release gives a place back, or ends the wait for one.
func (k *ticket) release() {
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

// setFloor has pods of lower priorities wait; without known there is no floor.
func (t *turns) setFloor(floor int32, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.floor, t.floored = floor, known
	t.grantLocked()
}

func (t *turns) grantLocked() {
	for t.free > 0 && len(t.waiting) > 0 && (!t.floored || t.waiting[0].priority >= t.floor) {
		close(t.waiting[0].granted)
		t.waiting = slices.Delete(t.waiting, 0, 1)
		t.free--
	}
}

// tried says that a worker knows whether it has something to start, and has asked for its turn.
func (p *Pool) tried(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[w.key]
	if e == nil || e.tried {
		return
	}
	e.tried = true
	p.floorLocked()
	if p.anyHeld {
		signal(p.freed)
	}
}

// floorLocked is the highest priority of a desired pod that nobody has looked at yet in this run: until it is known whether it has to be
// started, those below wait.
func (p *Pool) floorLocked() {
	floor, found := int32(0), false
	for _, e := range p.entries {
		if e.wish.round == p.round && !e.tried && (!found || e.wish.priority.Value > floor) {
			floor, found = e.wish.priority.Value, true
		}
	}
	p.starts.setFloor(floor, found)
}
