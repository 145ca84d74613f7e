package pool

// Parked returns how many workers have no goroutine, and the number of all workers.
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
