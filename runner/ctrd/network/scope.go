package network

import (
	"sync"
	"time"
)

// reports has the unrepaired damage that was reported, so that each is reported once.
type reports struct {
	mu   sync.Mutex
	open map[string]string // by sandbox
}

// fresh reports whether a notice was not reported yet. Repaired damage is removed.
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

// pending reports whether damage is unrepaired.
func (r *reports) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open) > 0
}

// forget removes a sandbox.
func (r *reports) forget(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, sandbox)
}

// scope is what to check.
type scope struct {
	// all includes links that belong to no pod.
	all  bool
	host bool
	// ports and filter are the rules of packages nat and filter.
	ports, filter bool
	pods          map[string]bool
}

func (s scope) empty() bool { return !s.all && !s.host && !s.ports && !s.filter && len(s.pods) == 0 }

// pending collects what to check.
type pending struct {
	mu    sync.Mutex
	scope scope
	wake  chan struct{}
}

func (d *pending) add(f func(*scope)) {
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

func (d *pending) take() scope {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.scope
	d.scope = scope{}
	return s
}

// penalties delay the repair of pods that damage their own network repeatedly. They are keyed by sandbox.
type penalties map[string]*penalty

type penalty struct {
	times int
	delay time.Duration
	until time.Time
	// waiting reports whether a check was deferred.
	waiting bool
}

// deferred removes the pods with a penalty from a scope. Complete checks are rare enough.
func (p penalties) deferred(s scope, now time.Time) scope {
	for id := range s.pods {
		if e := p[id]; e != nil && now.Before(e.until) {
			e.waiting = true
			delete(s.pods, id)
		}
	}
	return s
}

// add records damaged pods, and returns the time until the next deferred pod is due; 0: none.
func (p penalties) add(damaged []string, now time.Time) (next time.Duration) {
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

// due returns the deferred pods that are due.
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
