package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
)

// Resizing. A change of cpu and memory alone does not change the definition: the cgroup of the running container is changed, unless its
// resizePolicy requires a restart. The pod's cgroup is set to its final size once all containers have their resources; UpdateResources
// ensures that it is never too small before.

// Made reports whether the instance was made from the container's definition in pod.
func Made(h *podhash.Cache, pod *manifests.Pod, c *runner.Container) bool {
	return ranWith(pod, c) && c.Hash == h.Container(pod, c.Name)
}

// asWanted reports whether the instance was created from the definition that is followed, or has been updated to it.
func (p *view) asWanted(c *runner.Container) bool {
	return Made(p.hashes, p.pod, c) && !p.outgrown(c)
}

// outgrown reports whether the instance must be recreated to get the desired resources.
func (p *view) outgrown(c *runner.Container) bool {
	if p.sized(c) {
		return false
	}
	switch c.State {
	case runner.ContainerCreated:
		return true
	case runner.ContainerRunning:
		return resizeRestarts(ContainerSpec(p.pod, c.Name), c.Resources)
	}
	return false
}

// sized reports whether the instance has the desired resources, or its resources are unknown.
func (p *view) sized(c *runner.Container) bool {
	return p.holding() || c.ResourcesHash == "" || c.ResourcesHash == p.hashes.Resources(p.pod, c.Name)
}

// resizeRestarts reports whether one of the resources that differ must not be changed while the container runs.
func resizeRestarts(spec *corev1.Container, has *corev1.ResourceRequirements) bool {
	if spec == nil || has == nil {
		return false
	}
	return slices.ContainsFunc(spec.ResizePolicy, func(r corev1.ContainerResizePolicy) bool {
		return r.RestartPolicy == corev1.RestartContainer &&
			(!sameAmount(spec.Resources.Limits, has.Limits, r.ResourceName) || !sameAmount(spec.Resources.Requests, has.Requests, r.ResourceName))
	})
}

func sameAmount(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, inA := a[name]
	y, inB := b[name]
	return inA == inB && x.Cmp(y) == 0
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
		return c.State == runner.ContainerRunning && (!Made(p.hashes, p.pod, &c) || !p.sized(&c))
	})
	if !pending {
		p.add(runner.Action{Kind: runner.UpdateResources, Reason: "resources changed"})
	}
}

// sameSandbox reports whether the sandbox matches the pod, including the QoS class of its cgroup.
func (p *view) sameSandbox(pod *manifests.Pod) bool {
	s := p.o.Sandbox
	return s.Hash == p.hashes.Sandbox(pod) && (s.QOSClass == "" || s.QOSClass == manifests.QOSClass(pod.Object))
}

// ResizeKey returns the key of failures of UpdateResources, which delay nothing else. The empty name is the pod's.
func ResizeKey(container string) string { return "resize:" + container }
