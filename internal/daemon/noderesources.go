package daemon

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/host"
	"monopod/node/capacity"
	"monopod/node/pressure"
	"monopod/runner/admit"
)

// nodeResources are what the machine has, or is said to have, and what of it pods may request.
type nodeResources struct {
	machine  capacity.Machine
	reserved capacity.Reserved
	maxPods  int
}

// Capacity is what a node shows as its capacity.
func (n *nodeResources) Capacity() corev1.ResourceList { return capacity.Of(n.machine, n.maxPods) }

// Allocatable is what is left of it for pods.
func (n *nodeResources) Allocatable() corev1.ResourceList {
	return capacity.Allocatable(n.Capacity(), n.reserved)
}

// room is what pods may request together.
func (n *nodeResources) room() admit.Requests {
	if n == nil {
		return nil
	}
	return admit.RequestsOf(n.Allocatable())
}

// measure finds out what the machine has. Runs of their own are not kept from anything: they are there to see whether a pod works.
func (a *App) measure() error {
	if a.machine.Capacity == nil || a.Only != nil {
		return nil
	}
	m, err := a.machine.Capacity(a.cfg.RootDirectory)
	if err != nil {
		return err
	}
	reserved, err := a.cfg.Reserved()
	if err != nil {
		return err
	}
	thresholds, err := a.cfg.Pressure(false)
	if err != nil {
		return err
	}
	reserved.Memory, reserved.Storage = pressure.HardAmounts(thresholds.Thresholds)
	claimed, err := capacity.ParseClaimed(a.cfg.NodeCapacity)
	if err != nil {
		return err
	}
	a.resources = &nodeResources{machine: m.As(claimed), reserved: reserved, maxPods: a.cfg.MaxPods}
	a.cfg.PodsLimits = a.cfg.Enforced(m)
	if err := capacity.Check(a.resources.machine, reserved); err != nil {
		a.Log.Error("pods that request anything of it are not started", "err", err)
	}
	a.strain, err = a.newStrain()
	return err
}

// nodeLabels are what pods choose nodes by.
func (a *App) nodeLabels() map[string]string {
	if a.Only != nil {
		return nil
	}
	return a.cfg.Labels(host.Platform())
}
