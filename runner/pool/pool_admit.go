package pool

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/admit"
	"monopod/runner/plan"
)

// admitLocked decides which pods must wait. As long as all pods fit, it only considers those that compete for something else: host ports,
// or a node.
func (p *registry) admitLocked() admit.Decision {
	crowded := p.crowdedLocked()
	a := admit.Input{Known: map[manifests.Key]admit.Holding{}, Listed: p.listed, Blind: !p.listed, Node: p.cfg.NodeName, Labels: p.cfg.NodeLabels, LabelsLost: p.cfg.LabelsLost, Platform: p.cfg.Platform, Spaces: p.cfg.Spaces}
	if crowded {
		a.MaxPods, a.Room = p.cfg.MaxPods, p.cfg.Room
	}
	twins := p.twinsLocked()
	concerned := func(e *entry) bool { return e.desired.ports || e.desired.selects || twins[e.desired.pod.Object.UID] }
	for _, pod := range p.desired.Pods {
		if e := p.entries[pod.Key()]; e.asks() && (crowded || concerned(e)) {
			a.Desired = append(a.Desired, e.desired.pod)
		}
	}
	if len(a.Desired) == 0 {
		return admit.Decision{}
	}
	for key, e := range p.entries {
		a.Blind = a.Blind || !e.tried
		wanted := e.desired.round == p.round
		if crowded || e.holdsPorts || twins[e.report.uid] || wanted && concerned(e) || !wanted && !e.report.seen {
			a.Known[key] = p.holdingLocked(e)
		}
	}
	return admit.Decide(a)
}

func (p *registry) holdingLocked(e *entry) admit.Holding {
	h := admit.Holding{Seen: e.report.seen, UID: e.report.uid, Pod: e.report.holds, Place: e.place, Idle: e.report.idle()}
	switch {
	case e.desired.round == p.round:
		h.Priority, h.Leaving = e.desired.priority, e.evict != nil || e.evicted()
	case h.Pod != nil:
		h.Priority, h.Leaving = manifests.PriorityOf(h.Pod), p.desired.Removable(h.Pod.Origin)
	}
	return h
}

// crowdedLocked reports whether running and desired pods together may exceed a limit. A pod that is both counts with its higher requests.
func (p *registry) crowdedLocked() bool {
	places, sum := 0, admit.Requests{}
	for _, e := range p.entries {
		active, wanted := e.report.active() || e.place != nil, e.desired.round == p.round && e.asks()
		if e.desired.round != p.round && !e.tried && p.cfg.Room != nil {
			return true // its resources are unknown
		}
		if active || wanted {
			places++
		}
		if p.cfg.Room == nil {
			continue
		}
		var has admit.Requests
		if active {
			has = e.requests
			if e.place != nil {
				has = admit.PodRequests(e.place)
			}
			sum.Add(has, nil)
		}
		if wanted {
			sum.Add(e.desired.requests, has)
		}
	}
	if p.cfg.MaxPods > 0 && places > p.cfg.MaxPods {
		return true
	}
	for name, n := range sum {
		if p.cfg.Room != nil && n > p.cfg.Room[name] {
			return true
		}
	}
	return false
}

// preemptLocked orders pods to make room.
func (p *registry) preemptLocked(all map[manifests.Key]manifests.Key) {
	for key, by := range all {
		e := p.entries[key]
		if e == nil || e.report.status.Pod == nil || e.evict != nil {
			continue
		}
		p.cfg.Log.Info("preempting pod", "pod", key.String(), "for", by.String())
		e.evictFor = &by
		e.evict = &plan.Eviction{
			UID: string(e.report.status.Pod.UID), Reason: runner.ReasonPreempting, Grace: -1,
			Message: "Preempted in order to admit critical pod " + by.String(), Cause: cause.Cause{Kind: cause.Preempted, Pod: by.String()},
		}
	}
}

// countermandLocked cancels orders to make room for pods that do not wait now, because they are not desired or have got room elsewhere.
// Evictions that were carried out stay. It reports whether it canceled any.
func (p *registry) countermandLocked(decided admit.Decision) (some bool) {
	for key, e := range p.entries {
		if e.evictFor == nil || e.evicted() {
			continue
		}
		if _, waits := decided.Held[*e.evictFor]; !waits {
			p.cfg.Log.Info("preemption of the pod is cancelled", "pod", key.String(), "for", e.evictFor.String())
			e.evict, e.evictFor, some = nil, nil, true
		}
	}
	return some
}

// Evict stops the pod with the uid of the order; if the pod has another uid by now, it does nothing. The pod comes back after a back-off,
// and when the barrier allows it.
func (p *Pool) Evict(key manifests.Key, order plan.Eviction) {
	p.mu.Lock()
	if e := p.entries[key]; e != nil && e.evict == nil && e.report.status.Pod != nil && string(e.report.status.Pod.UID) == order.UID {
		e.evict = &order
	}
	p.mu.Unlock()
	signal(p.trigger)
}

// Barrier replaces the function that temporarily prevents pods from starting, and evicted ones from coming back; nil disables it. It must
// return quickly and must not call the Pool.
func (p *Pool) Barrier(b func(*manifests.Pod) *runner.Held) {
	p.change(func() { p.barrier = b })
}

// keepPlace processes a report before it is stored: if the pod existed and has no sandbox now, its place is reserved for the one being
// created.
func (e *entry) keepPlace(r report) {
	a := &e.assignment
	switch {
	case r.holds != nil || a.desired == nil:
		e.place = nil
	case !e.report.active():
	case a.held == nil:
		e.place = a.desired
	default:
		e.place = e.report.holds
	}
}

// findPlaceLocked reserves the place of a pod that was being recreated when an agent was killed, and releases the place of a pod that is
// not desired.
func (p *registry) findPlaceLocked(e *entry) {
	left := e.report.place
	switch {
	case e.report.holds != nil:
	case e.desired.round != p.round && (left == nil || p.desired.Removable(left.Origin)):
		e.place = nil
	case e.place == nil:
		e.place = left
	}
}

// active reports whether the pod exists and has not ended.
func (r *report) active() bool { return r.holds != nil && !r.idle() }

// idle reports that no container of the pod runs or will be restarted: the pod has ended.
func (r *report) idle() bool {
	if r.holds == nil || r.status.Pod == nil || r.status.Running {
		return false
	}
	phase := r.status.Pod.Status.Phase
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// evicted reports whether the pod has been evicted, whether or not it has ended.
func (e *entry) evicted() bool {
	return e.report.holds != nil && e.report.status.Pod != nil && plan.EvictedFor(e.report.status.Pod.Status.Reason)
}

// comesBack reports whether the pod was evicted and will be recreated.
func (e *entry) comesBack() bool {
	held := e.report.holds
	return e.report.idle() && plan.ReturnsAfter(e.report.status.Pod.Status.Reason, &held.Object.Spec, held.Origin)
}

// asks reports whether the pod, if desired, needs a place: it does unless a gate holds it, or it has ended permanently.
func (e *entry) asks() bool {
	return e.rule.Wait == nil && (!e.report.idle() || e.comesBack() || !e.sameAsHeld() && !e.final())
}

// final reports whether the pod is bound here by an API server and has ended: no edit runs it again.
func (e *entry) final() bool {
	held, want := e.report.holds, e.desired.pod
	return want != nil && want.Origin.Bound() && held.Object.UID == want.Object.UID
}

// sameAsHeld reports whether the desired manifest has been carried out.
func (e *entry) sameAsHeld() bool {
	return e.desired.pod != nil && podhash.Pod(e.desired.pod.Object) == podhash.Pod(e.report.holds.Object)
}
