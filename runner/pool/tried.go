package pool

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
	p.starts.SetFloor(floor, found)
}
