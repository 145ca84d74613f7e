package plan

import (
	"slices"

	"monopod/manifests"
	"monopod/runner"
)

// Planning of a sandbox without namespaces in which no container needs to be started: after a reboot because the pod has completed,
// otherwise because something unmounted the pins while all containers run.

// withoutPins is update for such a sandbox. Running containers are treated as in any other sandbox: hooks, probes, resizes, volumes, and
// their end once the pod has completed.
func (p *sequencer) withoutPins() {
	switch {
	case len(p.pod.Object.Spec.InitContainers) > 0 && p.ended():
		p.conclude("pod terminated")
	case p.manifest == runner.RecordedManifest:
		p.leaveRunning()
	default:
		p.tidy()
	}
	p.removeUnknown()
	if p.ended() {
		p.concludeDebug()
	} else {
		p.settleDebug()
	}
	if slices.ContainsFunc(p.o.Containers, isRunning) {
		p.resizePod() // a reboot removes its cgroup
	}
	p.record()
	p.syncVolumes()
}

// leaveRunning keeps the old pod running while the new one cannot be created: it stops nothing, and nothing can be started.
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

// tidy cleans up a pod whose containers are not started again: one instance of each container stays.
func (p *containerPlanner) tidy() {
	for spec := range manifests.AllContainers(&p.pod.Object.Spec) {
		all := p.instances(spec.Name)
		for _, c := range all[:max(0, len(all)-1)] {
			p.discard(c, "replaced")
		}
		for _, c := range all[max(0, len(all)-1):] {
			switch c.State {
			case runner.ContainerCreated:
				p.discard(c, "no longer needed")
			case runner.ContainerRunning:
				p.keepRunning(c, nil)
			case runner.ContainerExited:
				p.finish(c)
			}
		}
	}
}

// settlePod settles all instances while the pod has to wait.
func (p *stopper) settlePod() {
	for i := range p.o.Containers {
		p.settle(&p.o.Containers[i])
	}
	p.settleDebug()
}
