package pool

import (
	"context"
	"time"

	"monopod/runner/plan"
)

// parkFor is the shortest wait for which a worker gives up its goroutine.
const parkFor = time.Second

// parked is a worker without a goroutine, because it only has to wait. A waiting goroutine keeps the stack that it once needed, which for
// many pods takes more memory than all their state.
type parked struct {
	timer  *time.Timer
	resume func()
}

// park reports whether the worker needs no goroutine until it is woken or t is over. The caller must then return and not use the worker.
// Pods with work in the background are not parked.
func (w *worker) park(ctx context.Context, t turn) bool {
	d := w.waits(t)
	if d < parkFor || t.ignoreEvents || len(w.preparation)+len(w.hooks) > 0 || w.probing.busy() {
		return false
	}
	w.tidy()
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || len(w.events)+len(w.assign)+len(w.ready) > 0 {
		return false
	}
	w.parked = &parked{
		resume: func() { w.run(ctx) },
		timer: time.AfterFunc(d, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.resumeLocked(w)
		}),
	}
	return true
}

// tidy drops what only a changing pod needs.
func (w *worker) tidy() {
	w.preparation = map[string]*step{}
	if len(w.observed.Prepared) == 0 {
		w.observed.Prepared = map[string]plan.Preparation{}
	}
}

// busy reports whether there are probes.
func (p *probing) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watches) > 0
}

// wakeLocked wakes a worker through one of its channels.
func (p *Pool) wakeLocked(w *worker, what chan struct{}) {
	signal(what)
	p.resumeLocked(w)
}

// resumeLocked gives a parked worker a goroutine.
func (p *Pool) resumeLocked(w *worker) {
	if w.parked == nil || p.ended {
		return
	}
	w.parked.timer.Stop()
	resume := w.parked.resume
	w.parked = nil
	p.group.Go(resume)
}

// end waits for all goroutines; parked workers stay parked.
func (p *Pool) end() {
	p.mu.Lock()
	p.ended = true
	for _, e := range p.entries {
		e.worker.refuseLocked(context.Canceled)
		if e.worker.parked != nil {
			e.worker.parked.timer.Stop()
		}
	}
	p.mu.Unlock()
	p.group.Wait()
}
