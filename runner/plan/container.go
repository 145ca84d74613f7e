package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
)

// Planning of one container. Its instances, oldest first, are at most: what is left of the past (exited), one
// that runs, and a new one that waits for the running one to end:
//
//	definition changed:  [old Running] -> [old Running, new Created] -> [old Exited, new Created] -> [new Running]
//	crashed:             [old Exited] -> [old Exited, new Created] -> [old Exited, new Running] -> [new Running]
//
// The instance that the container is to live on with is the keeper; all others go.

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

// keeper returns the instance that fits the wanted definition: one that runs and has not been told to stop (an
// older one, when an edit was taken back in time), else the newest of all. Instances of another sandbox fit
// only as the record that they completed, and those of init containers not even so.
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

// stale says that an instance that waits to be started has become outdated meanwhile.
func (p *view) stale(c *runner.Container) bool {
	return c.State == runner.ContainerCreated && p.o.Stale[c.ID]
}

func (p *view) inSandbox(c *runner.Container) bool {
	return !p.fresh && p.o.Sandbox != nil && c.SandboxID == p.o.Sandbox.ID && c.Round == p.round
}

// exchange makes a new instance when none fits. The old one is stopped only after the new one stands ready.
func (p *containerPlanner) exchange(name string, all []*runner.Container) {
	old := newestThatRan(all)
	if p.holding() && old != nil && old.State == runner.ContainerRunning {
		p.settle(old)
		return
	}
	create, reason := p.succeed(name, all, old)
	if p.blocked(ManifestKey(p.manifest, name)) && !p.fallsBack(name, old) {
		p.holdOut(name, all)
		return
	}
	if p.image(name, old) != imageReady || !p.networkSetUp() {
		p.holdOut(name, all)
		return
	}
	p.removeThose(all, runner.ContainerCreated, "superseded")
	create.OrExit = !p.held && (old == nil || old.State != runner.ContainerRunning) // while another runs, nothing has happened
	p.add(create)
	if p.stopOthers(all, reason) {
		p.startNew(name, reason)
		p.removeThose(all, runner.ContainerExited, reason)
	}
}

// succeed is the action that makes an instance in place of those there are, and its reason. One that never ran leaves
// its history to the next.
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
			reason = "what it refers to may have changed"
		case p.fits(name, last) && p.inSandbox(last):
			reason = "resize requires restart"
		case p.fits(name, last):
			reason = "left over from another sandbox"
		}
	}
	create.Container, create.Reason = name, reason
	return create, reason
}

// holdOut is what happens while the new instance cannot be made: the old one goes on, restarts included, by the
// definition that is recorded on the sandbox. If that is not its definition, it is left alone.
func (p *containerPlanner) holdOut(name string, all []*runner.Container) {
	old := newestThatRan(all)
	if old == nil {
		return
	}
	rec := p.recordedSpec(name)
	if rec != nil && Made(p.hashes, p.o.Sandbox.Pod, old) && p.inSandbox(old) {
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

// startWaiting starts an instance that stands ready, when nothing of the container runs any more.
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

// networkSetUp adds the set-up of a network that was cut off or has failed, once per plan and before anything
// is created (an environment can have the pod's address in it) or started. A sandbox made in this plan sets
// its network up by itself.
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

// keepRunning leaves the instance alone, unless it has been told to stop: then it must also end.
func (p *containerPlanner) keepRunning(keep *runner.Container, others []*runner.Container) {
	p.settle(keep)
	p.postStart(keep)
	p.probes(keep)
	p.resize(keep)
	p.stopOthers(others, "superseded")
	p.removeThose(others, runner.ContainerCreated, "superseded")
	p.removeThose(others, runner.ContainerExited, "replaced")
}

// exited decides about the restart of an instance that ended by itself. The new one is started before the old
// one is removed, because removing takes longer than a restart should.
func (p *containerPlanner) exited(keep *runner.Container, others []*runner.Container) {
	stopped := p.stopOthers(others, "superseded")
	p.removeThose(others, runner.ContainerCreated, "superseded")
	r := p.restart(keep)
	if !p.inSandbox(keep) {
		r.At = p.now // the break was longer than most
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

// mayRestart says that the time has come and that the image is there; it adds the step for the image.
func (p *containerPlanner) mayRestart(c *runner.Container, r Restart) bool {
	if r.At.After(p.now) {
		p.at(r.At)
		return false
	}
	if p.blocked(ManifestKey(p.manifest, c.Name)) && !p.fallsBack(c.Name, c) {
		return false
	}
	return p.image(c.Name, c) == imageReady && p.networkSetUp()
}

// imageStep is how far the image of a container is.
type imageStep int

const (
	imageReady   imageStep = iota // present, or its step is in the plan
	imageComing                   // on its way in the background
	imageBlocked                  // failed not long ago
)

// imageTimeout bounds the look for a newer image where the one that ran before will do.
const imageTimeout = 10 * time.Second

// image adds EnsureImage where it is needed. prev is an instance that has run.
//
// A container that ran by the same definition and is started again, after a crash or a reboot, does not
// depend on its registry: pull policy Always makes it ask, but when the answer does not come it goes on with
// the image it had. kubelet reports ErrImagePull and leaves it down, which turns a lost uplink into a lost
// workload. A first start and a changed definition do insist on the answer.
func (p *containerPlanner) image(name string, prev *runner.Container) imageStep {
	if p.manifest == runner.RecordedManifest {
		return imageReady // it ran; if its image is gone nevertheless, CreateContainer says so
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

// fallsBack says that the registry did not answer, but that there is an image to fall back on. If that turns
// out to be gone, CreateContainer fails for another reason, and the next pull takes as long as it takes.
func (p *containerPlanner) fallsBack(name string, prev *runner.Container) bool {
	f, failed := p.o.Failures[ManifestKey(p.manifest, name)]
	return failed && f.Reason == runner.ReasonErrImagePull && p.canFallBack(name, prev)
}

// canFallBack says that the registry is asked only for a newer image. With other policies it is asked only when
// there is none.
func (p *containerPlanner) canFallBack(name string, prev *runner.Container) bool {
	spec := ContainerSpec(p.pod, name)
	return spec != nil && spec.ImagePullPolicy == corev1.PullAlways && p.fits(name, prev)
}

// fits says that the instance was made from the definition that is followed.
func (p *view) fits(name string, c *runner.Container) bool {
	return c != nil && c.Name == name && Made(p.hashes, p.pod, c)
}

// stopOthers stops those that run and says whether none does.
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

// discard takes an instance away that nothing wants.
func (p *stopper) discard(c *runner.Container, reason string) {
	if c.State == runner.ContainerRunning {
		p.stop(c, reason)
		return
	}
	p.removeInstance(c, reason)
}

// settle brings an instance that nothing else is decided about to rest: one that was told to stop is seen to
// its end, the exit of one that ended is recorded.
func (p *stopper) settle(c *runner.Container) {
	switch {
	case c.State == runner.ContainerRunning && c.Leaving():
		p.stop(c, "was told to stop")
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
