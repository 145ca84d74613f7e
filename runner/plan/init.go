package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan/retry"
)

// Planning of pods with init containers. They run one by one, in the order of the manifest. Those with restartPolicy Always are sidecars:
// the next container only waits for them to start. Regular containers come last.
//
//	init 1: [Running] -> [Exited 0]
//	sidecar:              [Running] . . . . . . . . . . . . . . . . . . . . . -> [Exited]
//	init 2:                          [Running] -> [Exited 0]
//	regular:                                       [Running] -> [Exited]
//
// Containers are started in order, but some are created earlier. While a sidecar starts that has neither a hook nor a startup probe, the
// containers after it are created already (ahead) and wait for their turn. Behind any other wait nothing is created early: an init
// container, a hook or a startup probe may provide files and links that must exist when a container is created.
//
// An init container that has completed is not run again in the same sandbox. Its definition cannot change there either, because the hash of
// the sandbox covers it.

// roleOf returns the role in which an instance was created, or if that is unknown, the role in the current manifest.
func (p *progress) roleOf(c *runner.Container) retry.Role {
	for _, pod := range []*manifests.Pod{p.sandboxPod(), p.pod} {
		if pod != nil && hasContainer(pod, c.Name) {
			return retry.RoleIn(&pod.Object.Spec, c.Name)
		}
	}
	return retry.Regular
}

// position returns the index of a container among the init containers.
func (p *progress) position(name string) int {
	for _, pod := range []*manifests.Pod{p.sandboxPod(), p.pod} {
		if pod == nil {
			continue
		}
		if i := slices.IndexFunc(pod.Object.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return i
		}
	}
	return -1
}

func (p *view) isInit(name string) bool {
	return retry.RoleIn(&p.pod.Object.Spec, name) == retry.Initial
}

// inOrder plans the containers of a pod that has init containers.
func (p *sequencer) inOrder() {
	switch {
	case p.initFailed():
		p.conclude("pod has failed")
		return
	case p.completedAll():
		p.regular()
		p.rest()
		return
	}
	allowed := p.initialize()
	if allowed == mayStart {
		p.regular()
	} else if p.getReady(allowed); len(p.actions) > 0 {
		return
	}
	// Recorded only here: the next container need not wait until the exit of the previous one is on record.
	for i := range p.pod.Object.Spec.InitContainers {
		if c := &p.pod.Object.Spec.InitContainers[i]; !manifests.IsSidecar(c) && p.passed(c.Name) {
			p.tidyOne(c.Name)
		}
	}
}

// permission is what the containers after a given one may do.
type permission int

const (
	mayNothing permission = iota // nothing
	mayCreate                    // be created
	mayStart                     // be started
)

// initialize plans the init containers and returns what the regular ones may do.
func (p *sequencer) initialize() permission {
	serving := slices.ContainsFunc(p.o.Containers, func(c runner.Container) bool {
		return p.inSandbox(&c) && c.State == runner.ContainerRunning && p.roleOf(&c) == retry.Regular
	})
	g := mayStart
	for i := range p.pod.Object.Spec.InitContainers {
		c := &p.pod.Object.Spec.InitContainers[i]
		switch isSidecar := manifests.IsSidecar(c); {
		case !isSidecar && p.passed(c.Name):
		case g != mayStart && !p.runs(c.Name):
			g = p.ahead(c, g)
		default:
			p.container(c)
			if g == mayStart {
				g = p.after(c, serving)
			}
		}
	}
	return g
}

// after returns what may be done after an init container whose turn has come.
func (p *sequencer) after(c *corev1.Container, serving bool) permission {
	switch {
	case !manifests.IsSidecar(c):
		return mayNothing
	case serving || p.started(c):
		return mayStart
	case p.o.Options.Parallel > 1 && startsAtOnce(c) && p.planned(runner.StartContainer, c.Name) && p.untried(c.Name):
		return mayCreate
	}
	return mayNothing
}

// startsAtOnce reports whether a sidecar counts as started as soon as its process runs.
func startsAtOnce(c *corev1.Container) bool {
	return manifests.IsSidecar(c) && c.StartupProbe == nil && !hasPostStart(c)
}

// untried reports whether no instance of a container has ended or failed to start.
func (p *progress) untried(name string) bool {
	_, failed := p.o.Failures[ManifestKey(p.manifest, name)]
	return !failed && newestThatRan(p.instances(name)) == nil
}

// ahead plans a container whose turn has not come, and returns what the containers after it may do. If the wait turns out to be longer than
// the start of a process, containers created early are removed, because they may become outdated.
func (p *sequencer) ahead(c *corev1.Container, g permission) permission {
	all := p.instances(c.Name)
	if g != mayCreate {
		p.removeEarly(all)
		return mayNothing
	}
	untried, regular := p.untried(c.Name), retry.RoleIn(&p.pod.Object.Spec, c.Name) == retry.Regular
	if untried {
		held := p.held
		p.held = true
		p.container(c)
		p.held = held
	} else {
		p.settleAll(c.Name)
	}
	if untried && startsAtOnce(c) || regular && !hasPostStart(c) {
		return mayCreate
	}
	return mayNothing
}

// removeEarly removes instances that were created early. Successors of an instance that ran stay, because they hold its history.
func (p *sequencer) removeEarly(all []*runner.Container) {
	for _, c := range all {
		if c.State == runner.ContainerCreated && p.inSandbox(c) && c.RestartCount == 0 && c.Last == nil && newestThatRan(all) == nil {
			p.removeInstance(c, "created too early")
			continue
		}
		p.settle(c)
	}
}

// passed reports whether an init container need not run again in this sandbox: it has succeeded, or a regular container, which comes later,
// has been started.
func (p *progress) passed(name string) bool {
	return !p.fresh && p.o.Sandbox != nil && InitPassed(&p.pod.Object.Spec, &p.o.PodState, p.round, name)
}

// InitPassed is the same as passed, for callers outside of a plan.
func InitPassed(spec *corev1.PodSpec, o *runner.PodState, round int, name string) bool {
	return slices.ContainsFunc(o.Containers, func(c runner.Container) bool {
		switch {
		case o.Sandbox == nil || c.SandboxID != o.Sandbox.ID || c.Round != round:
			return false
		case retry.RoleIn(spec, c.Name) == retry.Regular:
			return !c.StartedAt.IsZero()
		}
		return c.Name == name && retry.Succeeded(&c)
	})
}

// initFailed reports whether an init container has failed permanently, and the pod with it.
func (p *progress) initFailed() bool {
	for i := range p.pod.Object.Spec.InitContainers {
		name := p.pod.Object.Spec.InitContainers[i].Name
		if p.fresh || !p.isInit(name) || p.passed(name) {
			continue
		}
		all := p.instances(name)
		if n := len(all); n > 0 && p.inSandbox(all[n-1]) && !retry.Succeeded(all[n-1]) && p.completed(all[n-1]) {
			return true
		}
	}
	return false
}

// ended reports whether the pod has completed or failed.
func (p *progress) ended() bool { return p.initFailed() || p.completedAll() }

// completedAll reports whether no regular container will run again.
func (p *progress) completedAll() bool {
	for i := range p.pod.Object.Spec.Containers {
		all := p.instances(p.pod.Object.Spec.Containers[i].Name)
		if n := len(all); n == 0 || !p.completed(all[n-1]) {
			return false
		}
	}
	return true
}

// conclude stops the running containers of a pod that has completed or failed, sidecars last, and records their exits.
func (p *stopper) conclude(reason string) {
	for spec := range manifests.AllContainers(&p.pod.Object.Spec) {
		if retry.RoleIn(&p.pod.Object.Spec, spec.Name) != retry.Sidecar {
			p.stopOthers(p.instances(spec.Name), reason)
		}
	}
	for i := range p.pod.Object.Spec.Containers {
		p.tidyOne(p.pod.Object.Spec.Containers[i].Name)
	}
	p.rest()
}

// rest ends the sidecars of a pod that has completed or failed, and records the exits of the others.
func (p *stopper) rest() {
	var running []*runner.Container
	others := false
	for i := range p.o.Containers {
		c := &p.o.Containers[i]
		switch {
		case c.State != runner.ContainerRunning:
		case p.roleOf(c) == retry.Sidecar && hasContainer(p.pod, c.Name):
			running = append(running, c)
		default:
			others = true
		}
	}
	p.stopInTurn(running, others, "pod terminated")
	for i := range p.pod.Object.Spec.InitContainers {
		p.tidyOne(p.pod.Object.Spec.InitContainers[i].Name)
	}
}

// tidyOne keeps one instance of a container: the newest that ran. It leaves running instances alone.
func (p *stopper) tidyOne(name string) {
	all := p.instances(name)
	stays := newestThatRan(all)
	for _, c := range all {
		switch {
		case c.State == runner.ContainerRunning:
		case c == stays:
			p.finish(c)
		default:
			p.removeInstance(c, "no longer needed")
		}
	}
}

func (p *stopper) settleAll(name string) {
	for _, c := range p.instances(name) {
		p.settle(c)
	}
}

func (p *view) runs(name string) bool {
	return slices.ContainsFunc(p.instances(name), func(c *runner.Container) bool { return c.State == runner.ContainerRunning })
}

// started reports whether a sidecar has started as far as the containers after it require.
func (p *progress) started(spec *corev1.Container) bool {
	return slices.ContainsFunc(p.instances(spec.Name), func(c *runner.Container) bool {
		return p.inSandbox(c) && (p.holding() || p.fits(c.Name, c)) && !c.Leaving() && p.o.Started(spec, c)
	})
}

// getReady prepares for the time after the init containers: it creates later containers if that is allowed, otherwise pulls their images,
// and records exits.
func (p *sequencer) getReady(g permission) {
	for i := range p.pod.Object.Spec.Containers {
		g = p.ahead(&p.pod.Object.Spec.Containers[i], g)
	}
	for spec := range manifests.AllContainers(&p.pod.Object.Spec) {
		all := p.instances(spec.Name)
		if p.isInit(spec.Name) && p.passed(spec.Name) || slices.ContainsFunc(all, func(c *runner.Container) bool {
			return p.inSandbox(c) && c.State != runner.ContainerExited
		}) {
			continue
		}
		if !p.planned(runner.CreateContainer, spec.Name) {
			p.image(spec.Name, newestThatRan(all))
		}
	}
}

func (p *steps) planned(kind runner.ActionKind, name string) bool {
	return slices.ContainsFunc(p.actions, func(a runner.Action) bool { return a.Kind == kind && a.Container == name })
}

// anewInOrder recreates the sandbox of a pod with init containers after a reboot: all of them run again first. Old records stay until their
// container runs again, because they hold its history.
func (p *reviver) anewInOrder(same bool) {
	stays := func(c *runner.Container) bool {
		all := p.instances(c.Name)
		return same && c.State == runner.ContainerExited && c.ID == all[len(all)-1].ID
	}
	ok := p.removeDebug("node restarted")
	for i := range p.o.Containers {
		if c := &p.o.Containers[i]; stays(c) {
			p.finish(c)
		} else {
			ok = p.removeInstance(c, "node restarted") && ok
		}
	}
	if !ok {
		return
	}
	p.add(runner.Action{Kind: runner.RemoveSandbox, KeepFiles: same, Remade: true, Reason: "node restarted"})
	if same {
		p.o.NewUID = p.o.Sandbox.UID
	}
	p.o.Containers = slices.DeleteFunc(slices.Clone(p.o.Containers), func(c runner.Container) bool { return !stays(&c) })
	for i := range p.o.Containers {
		p.o.Containers[i].Recorded = true
	}
	p.createSandbox("node restarted")
	p.containers()
}

// surveyInOrder is survey for a pod with init containers.
func (p *reviver) surveyInOrder(same bool) []start {
	if same && p.ended() {
		return nil
	}
	var starts []start
	needed := false
	for spec := range manifests.AllContainers(&p.pod.Object.Spec) {
		s := start{create: runner.Action{Container: spec.Name}}
		if all := p.instances(spec.Name); same && len(all) > 0 {
			s.prev = all[len(all)-1]
		}
		isInit := p.isInit(spec.Name)
		if s.prev != nil && !isInit && p.completed(s.prev) {
			continue
		}
		fine := s.prev != nil && p.fine(s.prev) || isInit && p.passed(spec.Name)
		needed = needed || !fine
		starts = append(starts, s)
	}
	if !needed {
		return nil
	}
	return starts
}
