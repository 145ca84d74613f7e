package network

import (
	"sync"
	"time"
)

// reports remembers what was reported, so that one damage is reported once.
type reports struct {
	mu   sync.Mutex
	open map[string]string // by sandbox: damage that could not be repaired
}

// fresh says whether a notice is news. What is repaired needs no further report.
func (r *reports) fresh(n Notice) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[string]string{}
	}
	if n.Err == nil {
		delete(r.open, n.Sandbox)
		return true
	}
	text := n.Damage + n.Err.Error()
	if r.open[n.Sandbox] == text {
		return false
	}
	r.open[n.Sandbox] = text
	return true
}

// pending says whether damage waits for another try.
func (r *reports) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open) > 0
}

// forget drops a pod that is gone.
func (r *reports) forget(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, sandbox)
}

// scope is what is to be looked at.
type scope struct {
	// all: everything, and what belongs to no pod.
	all  bool
	host bool
	// ports and filter are the two kinds of rules.
	ports, filter bool
	pods          map[string]bool
}

func (s scope) empty() bool { return !s.all && !s.host && !s.ports && !s.filter && len(s.pods) == 0 }

// dirt gathers what events are about until it is looked at.
type dirt struct {
	mu    sync.Mutex
	scope scope
	wake  chan struct{}
}

func (d *dirt) add(f func(*scope)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.scope.pods == nil {
		d.scope.pods = map[string]bool{}
	}
	f(&d.scope)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *dirt) take() scope {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.scope
	d.scope = scope{}
	return s
}

// penalties keep a pod that damages its own network from keeping the agent busy.
type penalties map[string]*penalty

type penalty struct {
	times int
	delay time.Duration
	until time.Time
	// waiting says that events of it were put off.
	waiting bool
}

// defers takes the pods out of a scope whose time has not come. A look at all is rare enough.
func (p penalties) defers(s scope, now time.Time) scope {
	for id := range s.pods {
		if e := p[id]; e != nil && now.Before(e.until) {
			e.waiting = true
			delete(s.pods, id)
		}
	}
	return s
}

// punish notes which pods were damaged, and returns in how long one that was put off is due; 0: none.
func (p penalties) punish(damaged []string, now time.Time) (next time.Duration) {
	for _, id := range damaged {
		if id == "" {
			continue
		}
		e := p[id]
		if e == nil {
			e = &penalty{}
			p[id] = e
		}
		if e.times++; e.times > freely {
			e.delay = min(max(2*e.delay, minPenalty), maxPenalty)
		}
		e.until = now.Add(e.delay)
	}
	for id, e := range p {
		if now.After(e.until.Add(calm)) {
			delete(p, id)
		}
		if left := e.until.Sub(now); e.waiting && (next == 0 || left < next) {
			next = max(left, time.Millisecond)
		}
	}
	return next
}

// due returns the pods that were put off and are due.
func (p penalties) due(now time.Time) []string {
	var out []string
	for id, e := range p {
		if e.waiting && !now.Before(e.until) {
			e.waiting = false
			out = append(out, id)
		}
	}
	return out
}
