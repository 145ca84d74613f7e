package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
)

// Resizing. A change of cpu and memory alone is no change of definition: the cgroup of the running container is
// changed, unless its resizePolicy asks for a restart. What makes room for it, the pod's cgroup, follows when all
// containers have got what they are to have; that it is never too small meanwhile is seen to by the actions.

// Made reports whether the instance was made from the container's definition in pod.
func Made(h *podhash.Cache, pod *manifests.Pod, c *runner.Container) bool {
	return ranWith(pod, c) && c.Hash == h.Container(pod, c.Name)
}

// asWanted says that the instance was made from the definition that is followed, or has become so.
func (p *view) asWanted(c *runner.Container) bool {
	return Made(p.hashes, p.pod, c) && !p.outgrown(c)
}

// outgrown says that the instance can get the resources that are wanted only by being made anew.
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

// sized says that the instance has the resources that are wanted, or that nobody can tell.
func (p *view) sized(c *runner.Container) bool {
	return p.holding() || c.ResourcesHash == "" || c.ResourcesHash == p.hashes.Resources(p.pod, c.Name)
}

// resizeRestarts says that one of the resources that differ is not to be changed while the container runs.
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

// resize changes the resources of an instance that runs.
func (p *steps) resize(c *runner.Container) {
	if c.State != runner.ContainerRunning || c.Leaving() || p.sized(c) || p.blocked(ResizeKey(c.Name)) {
		return
	}
	p.add(runner.Action{Kind: runner.UpdateResources, Container: c.Name, ContainerID: c.ID, Reason: "resources changed"})
}

// resizePod changes the pod's cgroup, once every container that runs has what it is to have.
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

// sameSandbox says that the sandbox fits the pod: its cgroup is among those of the pod's class, too.
func (p *view) sameSandbox(pod *manifests.Pod) bool {
	s := p.o.Sandbox
	return s.Hash == p.hashes.Sandbox(pod) && (s.QOSClass == "" || s.QOSClass == manifests.QOSClass(pod.Object))
}

// ResizeKey is where failures of UpdateResources are kept: they delay nothing else. The empty name is the pod's.
func ResizeKey(container string) string { return "resize:" + container }
