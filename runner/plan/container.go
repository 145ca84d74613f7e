package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/plan/fit"
	"monopod/runner/plan/retry"
)

// Planning of one container. Its instances, oldest first, are at most: leftovers (exited), a running one, and a new one that waits for the
// running one to end:
//
//	definition changed:  [old Running] -> [old Running, new Created] -> [old Exited, new Created] -> [new Running]
//	crashed:             [old Exited] -> [old Exited, new Created] -> [old Exited, new Running] -> [new Running]
//
// The instance that is to remain is the keeper; all others are removed.

// container plans one container of the manifest.
func (p *containerPlanner) container(spec *corev1.Container) {
	all := p.instances(spec.Name)
	keep := p.keeper(all)
	if keep == nil {
		p.exchange(spec.Name, all)
		return
	}
	others := make([]*runner.Container, 0, len(all))
	for _, c := range all {
		if c != keep {
			others = append(others, c)
		}
	}
	switch keep.State {
	case runner.ContainerCreated:
		p.startWaiting(keep, others)
	case runner.ContainerRunning:
		p.keepRunning(keep, others)
	case runner.ContainerExited:
		p.exited(keep, others)
	}
}

// instances returns the instances of a container, oldest first.
func (p *view) instances(name string) []*runner.Container {
	var all []*runner.Container
	for i := range p.o.Containers {
		if p.o.Containers[i].Name == name {
			all = append(all, &p.o.Containers[i])
		}
	}
	return all
}

// isRunning reports whether an instance runs.
func isRunning(c runner.Container) bool { return c.State == runner.ContainerRunning }

// keeper returns the instance that matches the desired definition: one that runs and is not stopping (an older one if an edit was
// reverted in time), else the newest of all. An instance of another sandbox matches only as the record that its container completed; one of
// an init container never does.
func (p *view) keeper(all []*runner.Container) *runner.Container {
	for _, c := range slices.Backward(all) {
		if p.asWanted(c) && p.inSandbox(c) && c.State == runner.ContainerRunning && !c.Leaving() {
			return c
		}
	}
	if n := len(all); n > 0 {
		if c := all[n-1]; p.asWanted(c) && !p.stale(c) && (p.inSandbox(c) || c.State == runner.ContainerExited && !p.isInit(c.Name) && !p.outdated(c)) {
			return c
		}
	}
	return nil
}

// stale reports whether an instance that waits to be started has become outdated.
func (p *view) stale(c *runner.Container) bool {
	return c.State == runner.ContainerCreated && p.o.Stale[c.ID]
}

func (p *view) inSandbox(c *runner.Container) bool {
	return !p.fresh && p.o.Sandbox != nil && c.SandboxID == p.o.Sandbox.ID && c.Round == p.round
}

// exchange creates a new instance if none matches. The old one is stopped only after the new one has been created.
func (p *containerPlanner) exchange(name string, all []*runner.Container) {
	old := newestThatRan(all)
	if p.holding() && old != nil && old.State == runner.ContainerRunning {
		p.settle(old)
		return
	}
	create, reason := p.succeed(name, all, old)
	if p.blocked(ManifestKey(p.manifest, name)) && !p.fallsBack(name, old) {
		p.keepOldInstance(name, all)
		return
	}
	if p.image(name, old) != imageReady || !p.networkSetUp() {
		p.keepOldInstance(name, all)
		return
	}
	p.removeThose(all, runner.ContainerCreated, "superseded")
	create.OrExit = !p.held && (old == nil || old.State != runner.ContainerRunning) // a failed creation is no exit while another instance runs
	p.add(create)
	if p.stopOthers(all, reason) {
		p.startNew(name, reason)
		p.removeThose(all, runner.ContainerExited, reason)
	}
}

// succeed returns the action that creates the successor of the existing instances, and its reason. An instance that never ran passes its
// history on to the successor.
func (p *containerPlanner) succeed(name string, all []*runner.Container, old *runner.Container) (create runner.Action, reason string) {
	create, reason = p.inherit(old), "first start"
	if n := len(all); n > 0 {
		last := all[n-1]
		create.RestartCount = last.RestartCount + 1
		if last.State == runner.ContainerCreated {
			create.RestartCount = last.RestartCount
			if old == nil {
				create.Last, create.BackOff = last.Last, last.BackOff
			}
		}
		switch reason = runner.ReasonDefinitionChanged; {
		case p.outdated(last):
			reason = "all containers are restarted"
		case p.stale(last):
			reason = "referenced objects may have changed"
		case p.fits(name, last) && p.inSandbox(last):
			reason = "resize requires restart"
		case p.fits(name, last):
			reason = "left over from another sandbox"
		}
	}
	create.Container, create.Reason = name, reason
	return create, reason
}

// keepOldInstance handles the time in which the new instance cannot be created: the old one keeps running, restarts included, by the definition
// recorded on the sandbox. If that is not its definition, it is left alone.
func (p *containerPlanner) keepOldInstance(name string, all []*runner.Container) {
	old := newestThatRan(all)
	if old == nil {
		return
	}
	rec := p.recordedSpec(name)
	if rec != nil && fit.Made(p.hashes, p.o.Sandbox.Pod, old) && p.inSandbox(old) {
		q := *p
		q.view = p.followRecord()
		q.container(rec)
		return
	}
	for _, c := range all {
		p.settle(c)
	}
}

// recordedSpec returns the container's definition in the recorded manifest.
func (p *view) recordedSpec(name string) *corev1.Container {
	if p.o.Sandbox == nil || p.o.Sandbox.Pod == nil {
		return nil
	}
	return ContainerSpec(p.o.Sandbox.Pod, name)
}

// newestThatRan returns the newest instance that runs or ran.
func newestThatRan(all []*runner.Container) *runner.Container {
	for _, c := range slices.Backward(all) {
		if c.State != runner.ContainerCreated {
			return c
		}
	}
	return nil
}

// startWaiting starts a created instance once no other instance of the container runs.
func (p *containerPlanner) startWaiting(keep *runner.Container, others []*runner.Container) {
	if !p.stopOthers(others, runner.ReasonDefinitionChanged) || p.held || p.blocked(ManifestKey(p.manifest, keep.Name)) || !p.networkSetUp() {
		return
	}
	p.add(runner.Action{Kind: runner.StartContainer, Container: keep.Name, ContainerID: keep.ID, Reason: "ready", OrExit: true})
	p.removeThose(others, runner.ContainerCreated, "superseded")
	p.removeThose(others, runner.ContainerExited, "replaced")
}

// startNew starts the instance that this plan creates.
func (p *containerPlanner) startNew(name, reason string) {
	if !p.held && p.networkSetUp() {
		p.add(runner.Action{Kind: runner.StartContainer, Container: name, Reason: reason, OrExit: true})
	}
}

// networkSetUp adds SetupNetwork for a network whose setup was interrupted or failed, once per plan. It comes before any creation (the
// environment may contain the pod's address) and any start. A sandbox created by this plan sets up its network itself.
func (p *steps) networkSetUp() bool {
	if p.fresh || p.network || p.o.Sandbox.Network != runner.NetworkPending {
		return true
	}
	if p.podBlocked() {
		return false
	}
	p.network = true
	p.add(runner.Action{Kind: runner.SetupNetwork, Reason: "network set-up was not completed"})
	return true
}

// keepRunning leaves the instance alone, unless it is stopping: then it must also end.
func (p *containerPlanner) keepRunning(keep *runner.Container, others []*runner.Container) {
	p.settle(keep)
	p.postStart(keep)
	p.probes(keep)
	p.resize(keep)
	p.stopOthers(others, "superseded")
	p.removeThose(others, runner.ContainerCreated, "superseded")
	p.removeThose(others, runner.ContainerExited, "replaced")
}

// exited decides about the restart of an instance that ended by itself. The new instance is started before the old one is removed, because
// removing takes longer than a restart should.
func (p *containerPlanner) exited(keep *runner.Container, others []*runner.Container) {
	stopped := p.stopOthers(others, "superseded")
	p.removeThose(others, runner.ContainerCreated, "superseded")
	r := p.restart(keep)
	if !p.inSandbox(keep) {
		r.At = p.now // the reboot took longer than most back-offs
	}
	if !r.Wanted || !stopped || !p.mayRestart(keep, r) {
		p.finish(keep)
		p.removeThose(others, runner.ContainerExited, "replaced")
		return
	}
	p.add(runner.Action{
		Kind: runner.CreateContainer, Container: keep.Name, Reason: r.Reason,
		RestartCount: keep.RestartCount + 1, BackOff: r.BackOff, Last: keep.Ending(), Round: p.round, OrExit: !p.held,
	})
	p.startNew(keep.Name, r.Reason)
	p.removeThose(append(others, keep), runner.ContainerExited, "restarted")
}

// mayRestart reports whether the back-off is over and the image is present; it adds the step for the image.
func (p *containerPlanner) mayRestart(c *runner.Container, r retry.Restart) bool {
	if r.At.After(p.now) {
		p.at(r.At)
		return false
	}
	if p.blocked(ManifestKey(p.manifest, c.Name)) && !p.fallsBack(c.Name, c) {
		return false
	}
	return p.image(c.Name, c) == imageReady && p.networkSetUp()
}

// imageStep is the progress of the image of a container.
type imageStep int

const (
	imageReady   imageStep = iota // present, or its step is in the plan
	imageComing                   // being pulled in the background
	imageBlocked                  // failed recently; retried later
)

// imageTimeout limits the check for a newer image if the image of the previous instance can be used instead.
const imageTimeout = 10 * time.Second

// image adds EnsureImage if needed. prev is an instance that has run.
//
// A container that ran with the same definition and is restarted, after a crash or a reboot, does not depend on its registry. Pull policy
// Always makes it ask the registry, but without an answer it uses the image that it had. The kubelet reports ErrImagePull and leaves the
// container down, so that a lost uplink stops the workload. A first start and a changed definition do require the answer.
func (p *containerPlanner) image(name string, prev *runner.Container) imageStep {
	if p.manifest == runner.RecordedManifest {
		return imageReady // it ran before; if its image is missing, CreateContainer fails
	}
	switch p.o.Prepared[name] {
	case PreparationDone:
		return imageReady
	case PreparationRunning:
		return imageComing
	}
	if p.fallsBack(name, prev) {
		return imageReady
	}
	if p.blocked(name) {
		return imageBlocked
	}
	a := runner.Action{Kind: runner.EnsureImage, Container: name}
	if p.planned(runner.EnsureImage, name) {
		return imageReady
	}
	if f, failed := p.o.Failures[name]; p.canFallBack(name, prev) && (!failed || !f.IsImage()) {
		a.Timeout = imageTimeout
	}
	p.add(a)
	return imageReady
}

// fallsBack reports whether the registry did not answer, but an image of an earlier instance can be used. If that image is missing,
// CreateContainer fails for another reason, and the next pull has no timeout.
func (p *containerPlanner) fallsBack(name string, prev *runner.Container) bool {
	f, failed := p.o.Failures[ManifestKey(p.manifest, name)]
	return failed && f.Reason == runner.ReasonErrImagePull && p.canFallBack(name, prev)
}

// canFallBack reports whether the registry would only be asked for a newer image. With other policies than Always it is asked only if the
// image is missing.
func (p *containerPlanner) canFallBack(name string, prev *runner.Container) bool {
	spec := ContainerSpec(p.pod, name)
	return spec != nil && spec.ImagePullPolicy == corev1.PullAlways && p.fits(name, prev)
}

// fits reports whether the instance was created from the definition of the manifest that is followed.
func (p *view) fits(name string, c *runner.Container) bool {
	return c != nil && c.Name == name && fit.Made(p.hashes, p.pod, c)
}

// stopOthers stops running instances and reports whether none runs.
func (p *stopper) stopOthers(all []*runner.Container, reason string) bool {
	stopped := true
	for _, c := range all {
		if c.State == runner.ContainerRunning {
			p.stop(c, reason)
			stopped = false
		}
	}
	return stopped
}

func (p *steps) removeThose(all []*runner.Container, state runner.ContainerState, reason string) {
	for _, c := range all {
		if c.State == state {
			p.removeInstance(c, reason)
		}
	}
}

// discard removes an unused instance.
func (p *stopper) discard(c *runner.Container, reason string) {
	if c.State == runner.ContainerRunning {
		p.stop(c, reason)
		return
	}
	p.removeInstance(c, reason)
}

// settle completes the end of an instance that has no other step: it enforces the grace period of one that is stopping, and records
// the exit of one that ended.
func (p *stopper) settle(c *runner.Container) {
	switch {
	case c.State == runner.ContainerRunning && c.Leaving():
		p.stop(c, "stop was requested")
	case c.State == runner.ContainerExited:
		p.finish(c)
	}
}

func (p *steps) finish(c *runner.Container) {
	if c.State != runner.ContainerExited || c.Recorded || p.blocked(instanceKey(c.ID)) {
		return
	}
	a := runner.Action{Kind: runner.FinishContainer, Container: c.Name, ContainerID: c.ID, Exit: c.Exit}
	if c.Exit != nil {
		a.Reason = fmt.Sprintf("exited with %d", c.Exit.ExitCode)
	}
	p.add(a)
}

func (p *steps) removeInstance(c *runner.Container, reason string) bool {
	if p.blocked(instanceKey(c.ID)) {
		return false
	}
	p.add(runner.Action{Kind: runner.RemoveContainer, Container: c.Name, ContainerID: c.ID, Reason: reason})
	return true
}
