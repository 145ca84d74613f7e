package plan

import (
	"slices"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan/fit"
)

// Resizing. A change of cpu and memory alone does not change the definition: the cgroup of the running container is changed, unless its
// resizePolicy requires a restart. The pod's cgroup is set to its final size once all containers have their resources; UpdateResources
// ensures that it is never too small before.

// asWanted reports whether the instance was created from the definition that is followed, or has been updated to it.
func (p *view) asWanted(c *runner.Container) bool {
	return fit.Made(p.hashes, p.pod, c) && !p.outgrown(c)
}

// outgrown reports whether the instance must be recreated to get the desired resources.
func (p *view) outgrown(c *runner.Container) bool {
	return !p.holding() && fit.Outgrown(p.hashes, p.pod, c)
}

// sized reports whether the instance has the desired resources, or its resources are unknown.
func (p *view) sized(c *runner.Container) bool {
	return p.holding() || fit.Sized(p.hashes, p.pod, c)
}

// resize changes the resources of a running instance.
func (p *steps) resize(c *runner.Container) {
	if c.State != runner.ContainerRunning || c.Leaving() || p.sized(c) || p.blocked(ResizeKey(c.Name)) {
		return
	}
	p.add(runner.Action{Kind: runner.UpdateResources, Container: c.Name, ContainerID: c.ID, Reason: "resources changed"})
}

// resizePod changes the pod's cgroup once every running container has its desired resources.
func (p *steps) resizePod() {
	s := p.o.Sandbox
	if p.fresh || p.holding() || s.ResourcesHash == "" || s.ResourcesHash == p.hashes.PodResources(p.pod) || p.blocked(ResizeKey("")) {
		return
	}
	pending := slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool {
		return c.State == runner.ContainerRunning && (!fit.Made(p.hashes, p.pod, &c) || !p.sized(&c))
	})
	if !pending {
		p.add(runner.Action{Kind: runner.UpdateResources, Reason: "resources changed"})
	}
}

// sameSandbox reports whether the sandbox matches the pod, including the QoS class of its cgroup.
func (p *view) sameSandbox(pod *manifests.Pod) bool { return fit.Sandbox(p.hashes, pod, p.o.Sandbox) }

// ResizeKey returns the key of failures of UpdateResources, which delay nothing else. The empty name is the pod's.
func ResizeKey(container string) string { return "resize:" + container }
