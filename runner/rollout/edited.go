package rollout

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/rollout/packed"
)

// edited processes an update in which only the content of some pods has changed, which is the usual case: its cost does not depend on the
// number of pods. It reports whether the update was of that kind.
//
// An unchanged pod is followed as before: its state is from the place where it is written, so that no pod that was written elsewhere keeps
// running in its place.
func (c *Controller) edited() bool {
	pods := c.wanted.Pods
	if len(pods) != len(c.listed) || len(pods) != len(c.pods)+c.passing || len(c.states) != len(c.pods) {
		return false
	}
	var others []int
	for i, p := range pods {
		if p == c.listed[i] {
			continue
		}
		if f := c.pods[p.Key()]; f == nil || f.pod != c.listed[i] || !Stable(p) || f.unit != c.unitOf(p) || c.keeps(p) {
			return false
		}
		others = append(others, i)
	}
	for _, i := range others {
		p, f := pods[i], c.pods[pods[i].Key()]
		c.take(f, p)
		f.fresh = false
		u := c.units[f.unit]
		u.fresh, c.awake[u.id], c.listed[i] = true, u, p
	}
	return true
}

// take follows a new manifest of a pod.
func (c *Controller) take(f *followed, p *manifests.Pod) {
	f.pod, f.hash, f.unit, f.fresh = p, Hash(p.Object), c.unitOf(p), true
	if s := c.states[p.Key()]; s != nil {
		c.states[p.Key()] = s.shared(p.Object, f.hash)
	}
}

// put sets the state of a pod.
func (c *Controller) put(key manifests.Key, s *State) {
	c.states[key] = s
	if delete(c.apart, key); s.Active != s.Wanted {
		c.apart[key] = true
	}
}

// shared returns a state whose wanted revision uses the given pod itself if both are equal, so that the pod from disk and the pod from the
// source share memory. The original state is not changed.
func (s *State) shared(pod *corev1.Pod, hash string) *State {
	r := s.Revision(s.Wanted)
	if r == nil || r.Hash != hash || r.Manifest.Is(pod) {
		return s
	}
	s = s.clone()
	s.Revision(s.Wanted).Manifest = packed.Of(pod)
	return s
}

// pack compresses the manifests of the revisions of an unpublished state that are neither active nor wanted.
func (s *State) pack(p *packed.Packer) {
	for i := range s.Revisions {
		if r := &s.Revisions[i]; r.Number != s.Active && r.Number != s.Wanted {
			r.Manifest = p.Pack(r.Manifest)
		}
	}
}
