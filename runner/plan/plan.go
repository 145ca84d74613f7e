// Package plan decides what to do next with one pod: Plan turns the desired and the observed state into actions, and the time of the next look.
//
// It is pure: no clock, no disk, no runtime, no goroutines. It must not decide which pods may start: runner/admit does.
package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// Plan decides what to do now to bring a pod from what was observed to what is desired, and when to look
// again without an event: the zero next means that there is nothing to wait for but events. A nil desired
// means that the pod must go. Plan is pure; an empty plan with a zero next is the state of a converged pod.
//
// The actions are meant to be applied in order. What is left when one fails:
//   - an action of the pod (no Container) fails: the rest is not applied;
//   - an action of a container fails: the rest of that container is not applied, the other containers go on,
//     and RemoveSandbox is not applied.
//
// The sandbox comes before the images, although it is of no use without them: its network is set up in the
// background while images are looked up and containers created, and so costs nothing (CNI takes 15 to 70 ms,
// creating a container about 50). It also gives the pod its uid, its addresses and its record at once,
// however long a pull takes. Containers follow one by one in the order of the manifest. Who applies the plan may create
// several at once (see batch), but starts them in this order; what is created before its turn to be started is in the
// plan without its start (see plan_init.go).
func Plan(now time.Time, desired *manifests.Pod, o Observed) (actions []runner.Action, next time.Time) {
	p := newPlanner(&view{now: now, pod: desired, o: o, hashes: o.Hashes})
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

// keep handles a pod whose sandbox is as desired. Its limits hold whether or not the namespaces of the sandbox still exist.
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

// at asks to be called again at t.
func (p *steps) at(t time.Time) {
	if p.next.IsZero() || t.Before(p.next) {
		p.next = t
	}
}

// blocked says that the last try failed not long enough ago. A failure in the future does not block.
func (p *steps) blocked(key string) bool {
	f, ok := p.o.Failures[key]
	if !ok || f.At.After(p.now) || !p.now.Before(f.Due()) {
		return false
	}
	p.at(f.Due())
	return true
}

func (p *steps) podBlocked() bool { return p.blocked(ManifestKey(p.manifest, "")) }

// create makes a pod of which there is no sandbox.
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

// update handles a pod whose sandbox is as desired: each container by itself.
func (p *sequencer) update() {
	p.containers()
	p.resizePod()
	p.record()
	p.syncVolumes()
}

// syncVolumes brings volumes of a pod that runs up to date. Those of new containers are made so.
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
	p.strangers()
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

// portsTaken says that a container which is to serve on ports, and is new under its name, has to wait for one that the manifest
// does not have any more and that still runs: it may be the same one under another name.
func (p *view) portsTaken(spec *corev1.Container) bool {
	return len(spec.Ports) > 0 && !p.holding() && newestThatRan(p.instances(spec.Name)) == nil && slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool {
		return c.State == runner.ContainerRunning && p.inSandbox(&c) && !hasContainer(p.pod, c.Name)
	})
}

// strangers takes containers away that the manifest does not have.
func (p *containerPlanner) strangers() {
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

// holding says that the manifest followed is the recorded one. It may be older than some of what runs, because
// it is stored at the end of an update: what runs is then left alone, whatever its definition.
func (p *view) holding() bool { return p.o.Kept || p.manifest == runner.RecordedManifest }

// record stores a changed manifest, but only when the stored one is no longer needed: while an instance runs
// by a definition of the stored manifest that the desired one has replaced, it is what would be gone back to.
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
		return hasContainer(p.pod, c.Name) && !Made(p.hashes, p.pod, &c) &&
			hasContainer(rec, c.Name) && Made(p.hashes, rec, &c)
	})
}

// replace handles a change that needs a new sandbox. Nothing is stopped before everything that can be
// verified has been; until then, and if that fails, the old pod is kept alive from its recorded manifest.
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

// stopping says that the old pod is on its way out already: it was signaled, and nothing else runs.
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
		p.recorded().containers()
	default:
		p.recorded().withoutPins()
	}
}

// rebuild takes everything down and starts the pod anew.
func (p *sandboxPlanner) rebuild(reason string) {
	if !p.stopAll(reason) || p.podBlocked() || !p.removeAll(reason) {
		return
	}
	p.o.Containers = nil
	p.createSandbox(reason)
	p.containers()
}

// remove takes the whole pod away.
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

// removeAll removes all containers and the sandbox, and says whether nothing is left to be waited for.
func (p *sandboxPlanner) removeAll(reason string) bool {
	ok := true
	for i := range p.o.Containers {
		ok = p.removeInstance(&p.o.Containers[i], reason) && ok
	}
	if ok && p.o.Sandbox != nil {
		p.add(runner.Action{Kind: runner.RemoveSandbox, Remade: p.pod != nil && p.o.Halt == nil, Reason: reason})
	}
	return ok
}

// revive handles a sandbox whose namespaces are gone, which is what a reboot leaves. When nothing is to be
// started it stays as it is: a completed pod stays completed. Otherwise it is set up again, or replaced if it is not
// as desired. Images are seen to before the old records go, because those tell that the image was good enough before
// (see image).
func (p *reviver) revive() {
	same := p.sameSandbox(p.pod)
	if !same && slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool { return c.State == runner.ContainerRunning }) {
		p.replace()
		return
	}
	starts, complete := p.survey(same)
	if len(starts) == 0 {
		p.withoutPins()
		return
	}
	ready := p.imagesFirst(starts)
	running := slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool { return c.State == runner.ContainerRunning })
	if len(ready) == 0 || running && len(ready) < len(starts) || p.podBlocked() { // what runs is stopped only for what can be started
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

// startAgain starts an instance that this plan creates after a reboot, unless an earlier one has a hook to wait for.
func (p *containerPlanner) startAgain(name, reason string) {
	p.startNew(name, reason)
	if spec := ContainerSpec(p.pod, name); spec != nil {
		p.held = p.held || p.holdsBack(spec)
	}
}

// takeUp sets the sandbox up again, with its uid and what is on its disk, and starts what is ready in it. The old
// instances go last: until then they are the history, should this be cut off.
func (p *reviver) takeUp(ready []start, reason string) {
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

// survey finds what is to be started in a new sandbox, and the instances that need not run again. Containers
// that still run as desired (only the pins are gone) are no reason for a new sandbox, but go with it.
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

// completed says that the instance ended by itself and that its policy does not want it again. Restarts after a
// reboot do not wait for their back-off: it was a longer break than most, and kubelet does not wait either.
func (p *progress) completed(c *runner.Container) bool {
	return c.State == runner.ContainerExited && p.fits(c.Name, c) && !p.outdated(c) && !p.restart(c).Wanted
}

// carry takes the history of the previous instance over.
func (s *start) carry() {
	switch {
	case s.prev == nil:
	case s.prev.State == runner.ContainerCreated: // it never ran: the new one takes its place
		s.create.RestartCount, s.create.Last = s.prev.RestartCount, s.prev.Last
	default:
		s.create.RestartCount, s.create.Last = s.prev.RestartCount+1, s.prev.Ending()
	}
}

// imagesFirst adds the image steps and returns the containers that can be created once these are done. It
// returns none while an image is still on its way.
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

func (p *progress) restart(c *runner.Container) Restart {
	return NextRestart(p.now, &p.pod.Object.Spec, c, p.o.Options)
}

func hasContainer(pod *manifests.Pod, name string) bool { return ContainerSpec(pod, name) != nil }

// ContainerSpec returns the container's definition, nil when the pod has none of that name.
func ContainerSpec(pod *manifests.Pod, name string) *corev1.Container {
	return manifests.FindContainer(&pod.Object.Spec, name)
}
