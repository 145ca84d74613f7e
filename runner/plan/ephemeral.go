package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
)

// Planning of ephemeral containers. They are not part of the manifest but of the sandbox (Sandbox.Ephemeral), so that nothing else in a
// plan sees them: they are planned after the containers of the manifest, by their own instances (view.debug). Each is started once, as soon
// as the sandbox has its network and its target container, if any, runs. It is never restarted, its exit does not affect the pod, and it is
// stopped last.

// separate moves the instances of ephemeral containers out of the observed containers.
func (p *view) separate() {
	if p.o.Sandbox == nil || len(p.o.Sandbox.Ephemeral) == 0 {
		return
	}
	spec := &corev1.PodSpec{}
	if p.pod != nil {
		spec = &p.pod.Object.Spec
	}
	p.ephemeral = p.o.Sandbox.EphemeralOf(spec)
	p.debug, p.o.Containers = runner.SplitEphemeral(p.o.Containers, p.ephemeral)
}

// debugContainers plans the ephemeral containers of a pod whose sandbox is alive.
func (p *sequencer) debugContainers() {
	if len(p.ephemeral) == 0 || p.fresh || p.o.Sandbox == nil {
		return
	}
	if p.ended() {
		p.concludeDebug()
		return
	}
	for i := range p.ephemeral {
		p.debugContainer(&p.ephemeral[i])
	}
}

// debugContainer plans one ephemeral container. An instance of any round and in any state means that it has been started.
func (p *containerPlanner) debugContainer(spec *corev1.EphemeralContainer) {
	var last *runner.Container
	for i := range p.debug {
		if p.debug[i].Name == spec.Name {
			last = &p.debug[i]
		}
	}
	switch {
	case last == nil:
		if p.mayDebug(spec) && p.debugImage(spec.Name) && p.networkSetUp() {
			p.add(runner.Action{Kind: runner.CreateContainer, Container: spec.Name, Reason: "ephemeral container added", OrExit: true})
			p.add(runner.Action{Kind: runner.StartContainer, Container: spec.Name, Reason: "ephemeral container added", OrExit: true})
		}
	case last.State == runner.ContainerCreated:
		switch {
		case p.blocked(ManifestKey(p.manifest, spec.Name)) || !p.networkSetUp():
		case spec.TargetContainerName != "": // its namespace is that of a process, whose number another process may have by now
			p.removeInstance(last, "created for an earlier process of its target")
		default:
			p.add(runner.Action{Kind: runner.StartContainer, Container: spec.Name, ContainerID: last.ID, Reason: "ready", OrExit: true})
		}
	default:
		p.settle(last)
	}
}

// mayDebug reports whether an ephemeral container has no target, or its target runs.
func (p *view) mayDebug(spec *corev1.EphemeralContainer) bool {
	if spec.TargetContainerName == "" {
		return true
	}
	return slices.ContainsFunc(p.instances(spec.TargetContainerName), func(c *runner.Container) bool {
		return c.State == runner.ContainerRunning && c.SandboxID == p.o.Sandbox.ID && !c.Leaving()
	})
}

// debugImage reports whether the image of an ephemeral container is present, or its step is in the plan. Unlike image, it does not assume
// the image to be present because of the recorded manifest, which does not have the container.
func (p *steps) debugImage(name string) bool {
	switch p.o.Prepared[name] {
	case PreparationDone:
		return true
	case PreparationRunning:
		return false
	}
	if p.blocked(ManifestKey(p.manifest, name)) {
		return false
	}
	p.add(runner.Action{Kind: runner.EnsureImage, Container: name})
	return true
}

// stopDebug stops the running ephemeral containers once no other container runs, and reports whether any runs. Before that, it starts their
// grace period, so that all containers of the pod share one.
func (p *stopper) stopDebug(others bool, reason string) bool {
	running := false
	for i := range p.debug {
		c := &p.debug[i]
		switch {
		case c.State != runner.ContainerRunning:
			continue
		case others:
			p.stopLater(c, reason)
		default:
			p.stop(c, reason)
		}
		running = true
	}
	return running
}

// concludeDebug stops the ephemeral containers of a pod that has completed or failed.
func (p *stopper) concludeDebug() {
	p.stopDebug(slices.ContainsFunc(p.o.Containers, isRunning), "pod terminated")
	p.finishDebug()
}

// finishDebug completes the non-running instances of ephemeral containers of a terminated pod.
func (p *stopper) finishDebug() {
	for i := range p.debug {
		switch c := &p.debug[i]; c.State {
		case runner.ContainerCreated:
			p.removeInstance(c, "pod terminated")
		case runner.ContainerExited:
			p.finish(c)
		}
	}
}

func (p *stopper) settleDebug() {
	for i := range p.debug {
		p.settle(&p.debug[i])
	}
}

// removeDebug removes the instances of ephemeral containers, and reports whether none remains to wait for.
func (p *steps) removeDebug(reason string) bool {
	ok := true
	for i := range p.debug {
		ok = p.removeInstance(&p.debug[i], reason) && ok
	}
	return ok
}
