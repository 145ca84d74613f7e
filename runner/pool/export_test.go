package pool

// Parked is how many workers wait without a goroutine, and of how many.
func (p *Pool) Parked() (parked, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.worker.parked != nil {
			parked++
		}
	}
	return parked, len(p.entries)
}
