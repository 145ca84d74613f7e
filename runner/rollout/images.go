package rollout

import (
	"maps"
	"slices"
)

// digests counts the revisions that ran with each digest.
type digests map[string]int

// count adds or removes the images of a pod's revisions, and reports whether the set of digests has changed.
func (d digests) count(s *State, by int) (changed bool) {
	if s == nil {
		return false
	}
	for i := range s.Revisions {
		for _, digest := range s.Revisions[i].Images {
			before := d[digest]
			if d[digest] += by; d[digest] == 0 {
				delete(d, digest)
			}
			changed = changed || before == 0 || before+by == 0
		}
	}
	return changed
}

// note updates the counts from one state of a pod to the next. Digests in both states never disappear in between.
func (c *Controller) note(old, now *State) {
	added := c.images.count(now, 1)
	if dropped := c.images.count(old, -1); added || dropped {
		c.imagesTold = false
	}
}

// tellImages calls Config.Images if the digests have changed.
func (c *Controller) tellImages() {
	if c.imagesTold || c.cfg.Images == nil {
		return
	}
	c.imagesTold = true
	c.cfg.Images(slices.Sorted(maps.Keys(c.images)))
}
