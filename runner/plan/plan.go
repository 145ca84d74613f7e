// Package plan decides what to do next with one pod: Plan turns the desired and the observed state into actions and the time of the next
// plan.
//
// It is pure: no clock, disk, runtime or goroutines. It must not decide which pods may start, which is the task of runner/admit.
package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan/fit"
	"monopod/runner/plan/retry"
)

// Plan returns the actions that bring a pod from the observed to the desired state, and when to plan again if no event occurs; a zero next
// means to wait for events only. A nil desired means that the pod must be removed. Plan is pure. For a converged pod it returns an empty
// plan and a zero next.
//
// The actions must be applied in order. If one fails:
//   - an action of the pod (no Container): the remaining actions are not applied;
//   - an action of a container: the remaining actions of that container and RemoveSandbox are not applied; other containers
//     continue.
//
// The sandbox comes before the images, although it is useless without them: its network is set up in the background while images are looked
// up and containers created, and so costs no time (CNI takes 15 to 70 ms, creating a container about 50). It also gives the pod its uid,
// addresses and record immediately, however long a pull takes.
//
// Containers follow one by one in the order of the manifest. The caller may create several concurrently (see batch), but starts them in
// this order. A container that is created before its turn has no start in the plan (see init.go).
func Plan(now time.Time, desired *manifests.Pod, o Observed) (actions []runner.Action, next time.Time) {
	v := &view{now: now, pod: desired, o: o, hashes: o.Hashes}
	v.separate()
	o = v.o
	p := newPlanner(v)
	if p.final() {
		desired = o.Sandbox.Pod
		p.pod, p.manifest = desired, runner.RecordedManifest
	}
	if desired != nil && o.Sandbox != nil {
		p.round = RoundOf(&desired.Object.Spec, &o.PodState)
	}
	switch {
	case desired == nil:
		p.remove()
	case o.Halt != nil:
		p.halt()
	case o.Sandbox == nil:
		p.create()
	case o.Sandbox.Failed != nil && p.sameSandbox(desired):
		p.failed()
	case p.ordered():
		p.evict(o.Evict.Reason, o.Evict.Message, o.Evict.Cause)
	case p.sameSandbox(desired):
		p.keep()
	case !o.Sandbox.Alive:
		p.revive()
	default:
		p.replace()
	}
	return p.actions, p.next
}

// keep handles a pod whose sandbox is as desired. Its limits apply whether or not the namespaces of the sandbox still exist.
func (p *planner) keep() {
	if p.pod.Object.Spec.ActiveDeadlineSeconds != nil && p.overdue() {
		p.expire()
		return
	}
	if over := p.overuse(); over.Kind != "" {
		p.evict(runner.ReasonEvicted, over.Detail, over)
		return
	}
	if p.o.Sandbox.Alive {
		p.update()
	} else {
		p.revive()
	}
}

func (p *steps) add(a runner.Action) {
	a.Manifest = p.manifest
	p.actions = append(p.actions, a)
}

// at requests another plan at t.
func (p *steps) at(t time.Time) {
	if p.next.IsZero() || t.Before(p.next) {
		p.next = t
	}
}

// blocked reports whether the last attempt failed too recently to retry. A failure in the future does not block.
func (p *steps) blocked(key string) bool {
	f, ok := p.o.Failures[key]
	if !ok || f.At.After(p.now) || !p.now.Before(f.Due()) {
		return false
	}
	p.at(f.Due())
	return true
}

func (p *steps) podBlocked() bool { return p.blocked(ManifestKey(p.manifest, "")) }

// create creates a pod that has no sandbox.
func (p *sandboxPlanner) create() {
	if p.podBlocked() {
		return
	}
	p.createSandbox("pod added")
	p.containers()
}

func (p *sandboxPlanner) createSandbox(reason string) {
	uid := string(p.pod.Object.UID)
	if uid == "" {
		uid = p.o.NewUID
	}
	a := runner.Action{Kind: runner.CreateSandbox, UID: uid, Reason: reason}
	if p.evicted() {
		a.Evictions = evictions(p.o.Sandbox)
	}
	p.add(a)
	p.fresh, p.round = true, 0
}

// update handles a pod whose sandbox is as desired, container by container.
func (p *sequencer) update() {
	p.containers()
	p.debugContainers()
	p.resizePod()
	p.record()
	p.syncVolumes()
}

// syncVolumes updates the volumes of a running pod. New containers get current volumes anyway.
func (p *steps) syncVolumes() {
	if !p.o.VolumesStale || p.holding() || p.blocked(VolumesKey) {
		return
	}
	if slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool { return c.State == runner.ContainerRunning && p.inSandbox(&c) }) {
		p.add(runner.Action{Kind: runner.SyncVolumes, Reason: "content of volumes may have changed"})
	}
}

func (p *sequencer) containers() {
	if p.nextRound() {
		return
	}
	if len(p.pod.Object.Spec.InitContainers) > 0 {
		p.inOrder()
	} else {
		p.regular()
	}
	p.removeUnknown()
}

// regular plans the regular containers.
func (p *sequencer) regular() {
	for i := range p.pod.Object.Spec.Containers {
		c := &p.pod.Object.Spec.Containers[i]
		if p.held && !p.runs(c.Name) {
			p.settleAll(c.Name)
			continue
		}
		held := p.held
		p.held = held || p.portsTaken(c)
		p.container(c)
		p.held = held || p.holdsBack(c)
	}
	p.held = false
}

// portsTaken reports whether a container that serves on ports, and is new under its name, has to wait for a running container that the
// manifest lacks now: it may be the same container, renamed.
func (p *view) portsTaken(spec *corev1.Container) bool {
	return len(spec.Ports) > 0 && !p.holding() && newestThatRan(p.instances(spec.Name)) == nil && slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool {
		return c.State == runner.ContainerRunning && p.inSandbox(&c) && !hasContainer(p.pod, c.Name)
	})
}

// removeUnknown removes containers that the manifest does not have.
func (p *containerPlanner) removeUnknown() {
	for i := range p.o.Containers {
		switch c := &p.o.Containers[i]; {
		case hasContainer(p.pod, c.Name):
		case p.holding():
			p.settle(c)
		default:
			p.discard(c, "container removed from the manifest")
		}
	}
}

// holding reports whether the manifest that is followed is the recorded one. It is stored at the end of an update, so it may be older than
// some running containers; those are left alone, whatever their definition.
func (p *view) holding() bool { return p.o.Kept || p.manifest == runner.RecordedManifest }

// record stores a changed manifest once the stored one is not needed for a revert: that is, when no running instance uses a definition of
// the stored manifest that the desired one has replaced.
func (p *steps) record() {
	if p.holding() || !p.recordDiffers() || p.recordNeeded() || p.podBlocked() {
		return
	}
	p.add(runner.Action{Kind: runner.RecordPod, Reason: "manifest changed"})
}

func (p *view) recordDiffers() bool {
	rec := p.o.Sandbox.Pod
	if rec == nil || rec == p.pod {
		return rec == nil
	}
	moved := rec.Origin.Source != p.pod.Origin.Source || rec.Origin.File != p.pod.Origin.File
	return moved || !manifests.SameImages(rec, p.pod) || p.hashes.Pod(rec) != p.hashes.Pod(p.pod)
}

func (p *progress) recordNeeded() bool {
	rec := p.o.Sandbox.Pod
	return rec != nil && !p.ended() && slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool {
		return hasContainer(p.pod, c.Name) && !fit.Made(p.hashes, p.pod, &c) &&
			hasContainer(rec, c.Name) && fit.Made(p.hashes, rec, &c)
	})
}

// replace handles a change that needs a new sandbox. Nothing is stopped before all that can be verified has been verified. Until then, and
// if verification fails, the old pod is kept running from its recorded manifest.
func (p *sandboxPlanner) replace() {
	if !p.stopping() {
		switch {
		case p.o.Kept, p.o.Prepared[""] == PreparationRunning:
			p.keepOld()
			return
		case p.o.Prepared[""] == PreparationDone:
		case p.podBlocked():
			p.keepOld()
			return
		default:
			p.add(runner.Action{Kind: runner.CheckPod, Reason: "pod definition changed"})
		}
	}
	p.rebuild("pod definition changed")
}

// stopping reports whether the old pod is already ending: it was sent the signal, and nothing else runs.
func (p *progress) stopping() bool {
	begun := false
	for i := range p.o.Containers {
		c := &p.o.Containers[i]
		if c.State == runner.ContainerRunning && !c.Leaving() {
			return false
		}
		begun = begun || c.Leaving()
	}
	return begun
}

func (p *sandboxPlanner) keepOld() {
	switch {
	case p.o.Sandbox.Pod == nil:
	case p.o.Sandbox.Alive:
		q := p.recorded()
		q.containers()
		q.debugContainers()
	default:
		p.recorded().withoutPins()
	}
}

// rebuild removes everything and creates the pod again.
func (p *sandboxPlanner) rebuild(reason string) {
	if !p.stopAll(reason) || p.podBlocked() || !p.removeAll(reason) {
		return
	}
	p.o.Containers, p.debug = nil, nil
	p.createSandbox(reason)
	p.containers()
}

// remove removes the pod.
func (p *sandboxPlanner) remove() {
	if p.o.Sandbox == nil && len(p.o.Containers) == 0 {
		if p.o.Place != nil && !p.podBlocked() {
			p.add(runner.Action{Kind: runner.RemoveSandbox, Reason: "pod removed"})
		}
		return
	}
	if p.stopAll("pod removed") && !p.podBlocked() {
		p.removeAll("pod removed")
	}
}

// removeAll removes all containers and the sandbox, and reports whether nothing remains to wait for.
func (p *sandboxPlanner) removeAll(reason string) bool {
	ok := p.removeDebug(reason)
	for i := range p.o.Containers {
		ok = p.removeInstance(&p.o.Containers[i], reason) && ok
	}
	if ok && p.o.Sandbox != nil {
		p.add(runner.Action{Kind: runner.RemoveSandbox, Remade: p.pod != nil && p.o.Halt == nil, Reason: reason})
	}
	return ok
}

// revive handles a sandbox without namespaces, as after a reboot. If no container needs to be started, it stays as it is: a completed pod
// stays completed. Otherwise it is set up again, or replaced if it is not as desired. Images are ensured before the old records are
// removed, because those show that the image was usable before (see image).
func (p *reviver) revive() {
	same := p.sameSandbox(p.pod)
	if !same && slices.ContainsFunc(p.o.Containers, isRunning) {
		p.replace()
		return
	}
	starts, complete := p.survey(same)
	if len(starts) == 0 {
		p.withoutPins()
		return
	}
	ready := p.imagesFirst(starts)
	running := slices.ContainsFunc(p.o.Containers, isRunning)
	if len(ready) == 0 || running && len(ready) < len(starts) || p.podBlocked() { // running containers are stopped only for those that can be started
		p.settlePod()
		return
	}
	if !p.stopAll("node restarted") {
		return
	}
	switch {
	case len(p.pod.Object.Spec.InitContainers) > 0:
		p.anewInOrder(same)
		return
	case same:
		p.takeUp(ready, "node restarted")
		return
	}
	p.o.Containers = slices.DeleteFunc(slices.Clone(p.o.Containers), func(c runner.Container) bool { return complete[c.ID] })
	if !p.removeAll("node restarted") {
		return
	}
	p.createSandbox("node restarted")
	for _, s := range ready {
		p.add(s.create)
		p.startAgain(s.create.Container, "node restarted")
	}
}

// startAgain starts an instance that this plan creates after a reboot, unless an earlier container has a hook to wait for.
func (p *containerPlanner) startAgain(name, reason string) {
	p.startNew(name, reason)
	if spec := ContainerSpec(p.pod, name); spec != nil {
		p.held = p.held || p.holdsBack(spec)
	}
}

// takeUp sets the sandbox up again, with its uid and its data on disk, and starts the prepared containers in it. The old instances are
// removed last: until then they hold the history, in case this is interrupted.
func (p *reviver) takeUp(ready []start, reason string) {
	for i := range p.debug {
		if c := &p.debug[i]; c.State == runner.ContainerCreated {
			p.removeInstance(c, reason) // its namespaces are gone
		}
	}
	p.add(runner.Action{Kind: runner.ReviveSandbox, Reason: reason})
	p.fresh = true
	for _, s := range ready {
		s.create.Round = p.round
		p.add(s.create)
		p.startAgain(s.create.Container, reason)
		for _, c := range p.instances(s.create.Container) {
			p.removeInstance(c, reason)
		}
	}
}

// start is a container to be started after a reboot.
type start struct {
	prev   *runner.Container
	create runner.Action
}

// survey finds the containers to be started in a new sandbox, and the instances that need not run again. Containers that still run as
// desired (only the pins are gone) do not require a new sandbox, but are replaced with it.
func (p *reviver) survey(same bool) (starts []start, complete map[string]bool) {
	if len(p.pod.Object.Spec.InitContainers) > 0 {
		return p.surveyInOrder(same), nil
	}
	complete = map[string]bool{}
	needed := false
	for i := range p.pod.Object.Spec.Containers {
		s := start{create: runner.Action{
			Kind: runner.CreateContainer, Container: p.pod.Object.Spec.Containers[i].Name, Reason: "node restarted",
		}}
		if all := p.instances(s.create.Container); same && len(all) > 0 {
			s.prev = all[len(all)-1]
		}
		if s.prev != nil && p.completed(s.prev) {
			complete[s.prev.ID] = true
			continue
		}
		needed = needed || s.prev == nil || !p.fine(s.prev)
		s.carry()
		starts = append(starts, s)
	}
	if !needed {
		return nil, complete
	}
	return starts, complete
}

// fine reports whether the instance runs as desired.
func (p *view) fine(c *runner.Container) bool {
	return c.State == runner.ContainerRunning && !c.Leaving() && p.inSandbox(c) && (p.holding() || p.asWanted(c))
}

// completed reports whether the instance ended by itself and its policy does not restart it. Restarts after a reboot do not wait for their
// back-off: the reboot took longer than most back-offs, and the kubelet does not wait either.
func (p *progress) completed(c *runner.Container) bool {
	return c.State == runner.ContainerExited && p.fits(c.Name, c) && !p.outdated(c) && !p.restart(c).Wanted
}

// carry takes over the history of the previous instance.
func (s *start) carry() {
	switch {
	case s.prev == nil:
	case s.prev.State == runner.ContainerCreated: // it never ran: the new one replaces it
		s.create.RestartCount, s.create.Last = s.prev.RestartCount, s.prev.Last
	default:
		s.create.RestartCount, s.create.Last = s.prev.RestartCount+1, s.prev.Ending()
	}
}

// imagesFirst adds the image steps and returns the containers that can be created once these are done. It returns none while an image is
// being pulled.
func (p *reviver) imagesFirst(starts []start) (ready []start) {
	for _, s := range starts {
		switch p.image(s.create.Container, s.prev) {
		case imageReady:
			ready = append(ready, s)
		case imageComing:
			return nil
		case imageBlocked:
		}
	}
	return ready
}

func (p *progress) restart(c *runner.Container) retry.Restart {
	return NextRestart(p.now, &p.pod.Object.Spec, c, p.o.Options)
}

func hasContainer(pod *manifests.Pod, name string) bool { return ContainerSpec(pod, name) != nil }

// ContainerSpec returns the container's definition, nil if the pod has none of that name.
func ContainerSpec(pod *manifests.Pod, name string) *corev1.Container {
	return manifests.FindContainer(&pod.Object.Spec, name)
}
