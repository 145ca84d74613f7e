package pool

import (
	"monopod/manifests"
	"monopod/runner"
)

// Gate decides which pods may run. It must return quickly and must not call the Pool.
type Gate func(*manifests.Pod) runner.Rule

// Gate replaces the Gate of the pool; with nil, every pod may run. It never blocks.
func (p *Pool) Gate(g Gate) {
	p.mu.Lock()
	p.gate = g
	p.mu.Unlock()
	signal(p.trigger)
}

// gateLocked returns the decision of the Gate about a pod.
func (p *registry) gateLocked(e *entry) runner.Rule {
	wanted := e.desired.round == p.round
	pod := e.report.holds
	if wanted {
		pod = e.desired.pod
	}
	r := runner.Rule{}
	if p.gate != nil && pod != nil {
		r = p.gate(pod)
	}
	if own := runner.RuleOf(e.desired.pod); wanted && own.Halt != nil && (r.Halt == nil || !r.Halt.Remove) {
		r = own
	}
	if wanted && r.Wait == nil && p.barrier != nil {
		r.Wait = p.barrier(e.desired.pod)
	}
	if !wanted || e.report.seen && e.report.holds != nil && !e.comesBack() || e.place != nil && r.Halt == nil {
		r.Wait = nil
	}
	return r
}

// sameHalt reports whether two Halts are the same for the pod.
func sameHalt(a, b *runner.Halt) bool { return a == b || a != nil && b != nil && *a == *b }
