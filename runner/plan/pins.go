package plan

import (
	"slices"

	"monopod/manifests"
	"monopod/runner"
)

// Planning of a sandbox whose namespaces are gone and in which nothing is to be started: after a reboot because the pod has
// completed, else because something unmounted the pins while all containers run.

// withoutPins is update for a sandbox that has lost its namespaces and in which nothing is to be started. What still runs is
// treated as in any other sandbox: hooks, probes, resizes, volumes, and its end once the pod has nothing more to do.
func (p *sequencer) withoutPins() {
	switch {
	case len(p.pod.Object.Spec.InitContainers) > 0 && p.ended():
		p.conclude("pod has ended")
	case p.manifest == runner.RecordedManifest:
		p.leaveRunning()
	default:
		p.tidy()
	}
	p.strangers()
	if slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool { return c.State == runner.ContainerRunning }) {
		p.resizePod() // a reboot removes its cgroup
	}
	p.record()
	p.syncVolumes()
}

// leaveRunning keeps the old pod up while the new one cannot be made: nothing is stopped, and nothing can be started.
func (p *containerPlanner) leaveRunning() {
	for spec := range manifests.AllContainers(&p.pod.Object.Spec) {
		for _, c := range p.instances(spec.Name) {
			if c.State == runner.ContainerRunning {
				p.keepRunning(c, nil)
			} else {
				p.finish(c)
			}
		}
	}
}

// tidy brings a pod to rest of which nothing is to be started: one instance of each container stays.
func (p *containerPlanner) tidy() {
	for spec := range manifests.AllContainers(&p.pod.Object.Spec) {
		all := p.instances(spec.Name)
		for _, c := range all[:max(0, len(all)-1)] {
			p.discard(c, "replaced")
		}
		for _, c := range all[max(0, len(all)-1):] {
			switch c.State {
			case runner.ContainerCreated:
				p.discard(c, "not needed any more")
			case runner.ContainerRunning:
				p.keepRunning(c, nil)
			case runner.ContainerExited:
				p.finish(c)
			}
		}
	}
}

// settlePod brings the instances to rest while the pod has to wait.
func (p *stopper) settlePod() {
	for i := range p.o.Containers {
		p.settle(&p.o.Containers[i])
	}
}
