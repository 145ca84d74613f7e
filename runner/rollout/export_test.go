package rollout

import (
	"maps"

	"monopod/manifests"
)

// States returns the states of all pods.
func (c *Controller) States() map[manifests.Key]*State {
	c.work.Lock()
	defer c.work.Unlock()
	return maps.Clone(c.states)
}
