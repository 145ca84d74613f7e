package state

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/pool"
	"monopod/runner/workload"
)

// updatable is the part of a pool that replacements need.
type updatable interface {
	Update(d model.Desired)
	// has reports whether a pod exists with that uid.
	has(key manifests.Key, uid types.UID) bool
}

// updatedPool is a pool as an updatable.
type updatedPool struct{ *pool.Pool }

func (p updatedPool) has(key manifests.Key, uid types.UID) bool {
	for _, s := range p.Pods() {
		if s.Key() == key {
			return s.Pod.UID == uid
		}
	}
	return false
}

// replacements leaves pods out of the desired state of a pool until they are gone, so that they are recreated. The zero value is ready. Its
// lock may be held while the pool's lock is taken, never the reverse.
type replacements struct {
	mu sync.Mutex
	// uids has the pods to be replaced.
	uids map[manifests.Key]types.UID
	// pool received last, the latest desired state; nil before the first one.
	pool updatable
	last model.Desired
}

// feed returns the function that passes desired pods to a pool.
func (r *replacements) feed(p updatable) func(model.Desired) {
	return func(d model.Desired) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.pool != p {
			clear(r.uids) // a new pool does not report what the previous one removed
		}
		r.pool, r.last = p, d
		r.tellLocked()
	}
}

func (r *replacements) tellLocked() {
	d := r.last
	if len(r.uids) > 0 {
		d.Pods = slices.DeleteFunc(slices.Clone(d.Pods), func(p *manifests.Pod) bool { return r.uids[p.Key()] != "" })
	}
	r.pool.Update(d)
}

// add has a pod removed and created again; one of a Job is left to the expander, because it may have done its work. It returns false if there
// is no such pod.
func (r *replacements) add(key manifests.Key, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pool == nil || uid == "" || !r.pool.has(key, uid) {
		return false
	}
	if slices.ContainsFunc(r.last.Pods, func(p *manifests.Pod) bool { return p.Key() == key && workload.OfJob(p) }) {
		return true
	}
	if r.uids == nil {
		r.uids = map[manifests.Key]types.UID{}
	}
	r.uids[key] = uid
	r.tellLocked()
	return true
}

// observed handles a change of a pod.
func (r *replacements) observed(c pool.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid, waits := r.uids[c.Key]
	if !waits || !c.Gone && (c.Status.Pod == nil || c.Status.Pod.UID == uid) {
		return
	}
	delete(r.uids, c.Key)
	r.tellLocked()
}

// Feed returns the function that passes desired pods to a pool, without those that are being replaced.
func (s *Store) Feed(p *pool.Pool) func(model.Desired) { return s.replaced.feed(updatedPool{p}) }

// Replace stops the pod of a workload with that uid, and has it made anew, unless it is of a Job that has no more use for it. The order is
// lost by a restart of the daemon.
func (s *Store) Replace(key manifests.Key, uid types.UID) {
	if s.replaced.add(key, uid) {
		s.Workloads.podDeleted(key)
	}
}
