package daemon

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/node/capacity"
	"monopod/node/pressure"
	"monopod/runner/admit"
)

// nodeResources are the detected or configured resources of the node. A nil value limits nothing.
type nodeResources struct {
	machine  capacity.Machine
	reserved capacity.Reserved
	maxPods  int
}

// Capacity returns the capacity of the node.
func (n *nodeResources) Capacity() corev1.ResourceList { return capacity.Of(n.machine, n.maxPods) }

// Allocatable returns what of it pods may request.
func (n *nodeResources) Allocatable() corev1.ResourceList {
	return capacity.Allocatable(n.Capacity(), n.reserved)
}

// room returns what all pods together may request; nil: no limit.
func (n *nodeResources) room() admit.Requests {
	if n == nil {
		return nil
	}
	return admit.RequestsOf(n.Allocatable())
}

// measure reads the resources of the machine, and sets what is derived from them.
func (m *machineParts) measure(c *core) error {
	if c.deps.Machine.Capacity == nil {
		return nil
	}
	found, err := m.find(c)
	if err != nil {
		return err
	}
	m.podsLimits = c.cfg.Enforced(found)
	if err := capacity.Check(m.resources.machine, m.resources.reserved); err != nil {
		c.deps.Log.Error("pods that request anything of it are not started", "err", err)
	}
	m.evictor, err = newEvictor(c, m.podsLimits)
	return err
}

// find reads the resources of the machine.
func (m *machineParts) find(c *core) (found capacity.Machine, err error) {
	if found, err = c.deps.Machine.Capacity(c.cfg.RootDirectory); err != nil {
		return found, err
	}
	reserved, err := c.cfg.Reserved()
	if err != nil {
		return found, err
	}
	thresholds, err := c.cfg.Pressure(false)
	if err != nil {
		return found, err
	}
	reserved.Memory, reserved.Storage = pressure.HardAmounts(thresholds.Thresholds)
	claimed, err := capacity.ParseClaimed(c.cfg.NodeCapacity)
	if err != nil {
		return found, err
	}
	m.resources = &nodeResources{machine: found.As(claimed), reserved: reserved, maxPods: c.cfg.MaxPods}
	return found, nil
}

// room returns what all pods together may request; nil: no limit.
func (m *machineParts) room() admit.Requests {
	if m.roomy {
		return nil
	}
	return m.resources.room()
}
