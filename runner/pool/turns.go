package pool

import (
	"cmp"
	"slices"
	"sync"
)

// turns lets a limited number of pods work concurrently: of those that wait, the one with the highest priority first, then the one that has
// waited longest. A pod with a priority below the floor waits even if there is room.
type turns struct {
	mu sync.Mutex
	// All fields below are guarded by mu.
	free    int
	waiting []*ticket
	floor   int32
	floored bool
}

// ticket is a place, or the wait for one.
type ticket struct {
	of       *turns
	priority int32
	// granted is closed when the ticket becomes a place.
	granted chan struct{}
}

func newTurns(n int) *turns { return &turns{free: n} }

// ask returns a ticket. It must be released, whether or not it has been granted.
func (t *turns) ask(priority int32) *ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &ticket{of: t, priority: priority, granted: make(chan struct{})}
	// After all tickets of the same priority.
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

// release releases a place, or ends the wait for one.
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

// setFloor makes pods of lower priorities wait; if known is false, there is no floor.
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

// tried records that a worker knows whether it has something to start, and has requested its turn.
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

// floorLocked sets the floor to the highest priority of the desired pods that have not been observed yet in this run: until it is known
// whether such a pod must be started, pods of lower priority wait.
func (p *Pool) floorLocked() {
	floor, found := int32(0), false
	for _, e := range p.entries {
		if e.desired.round == p.round && !e.tried && (!found || e.desired.priority.Value > floor) {
			floor, found = e.desired.priority.Value, true
		}
	}
	p.starts.setFloor(floor, found)
}
