package runtimetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
)

// Apply implements runner.Runtime.
func (f *Fake) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) (err error) {
	slow := a.Kind == runner.EnsureImage || a.Kind == runner.CheckPod
	if err := f.begin(key, a, slow); err != nil {
		return err
	}
	if !slow {
		defer f.finish(key, a)
	}
	if a.Kind == runner.EnsureImage {
		defer f.tellImage(ctx, spec(pod, a.Container))(&err)
	}
	if err := f.take(ctx, a, slow); err != nil {
		return err
	}
	if f.Fail != nil {
		if err := f.Fail(key, a); err != nil {
			return err
		}
	}
	switch {
	case a.Kind == runner.StartContainer, a.Kind == runner.SetupNetwork,
		a.Kind == runner.CreateContainer && needsAddress(spec(pod, a.Container)):
		if err := f.awaitNetwork(key, a.Kind == runner.SetupNetwork); err != nil {
			return err
		}
	}
	after, err := f.effect(key, pod, a)
	if after != nil {
		after()
	}
	return err
}

// tellImage reports the progress of a pull; the returned function reports its end.
func (f *Fake) tellImage(ctx context.Context, c *corev1.Container) func(*error) {
	f.mu.Lock()
	present := f.images[c.Image] || c.ImagePullPolicy == corev1.PullNever
	f.mu.Unlock()
	p, began := runner.ImageProgress{Image: c.Image, Present: present && c.ImagePullPolicy != corev1.PullAlways}, time.Now()
	if !p.Present {
		runner.ReportImageProgress(ctx, runner.ImageProgress{Image: c.Image, Pulling: true})
	}
	return func(err *error) {
		if *err == nil {
			p.Took, p.Size = time.Since(began), fakeImageSize
			runner.ReportImageProgress(ctx, p)
		}
	}
}

// fakeImageSize is the size of each image.
const fakeImageSize = 1 << 20

func (f *Fake) begin(key manifests.Key, a runner.Action, slow bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return ErrDead
	}
	if slow {
		return nil
	}
	for _, other := range f.busy[key] {
		if !mayOverlap(a, other) {
			f.overlaps = append(f.overlaps, fmt.Sprintf("%s: %s during %s", key, a, other))
		}
	}
	f.busy[key] = append(f.busy[key], a)
	return nil
}

// mayOverlap reports whether two actions on a pod may be applied concurrently: creations and starts of other containers.
func mayOverlap(a, b runner.Action) bool {
	creations := 0
	for _, x := range []runner.Action{a, b} {
		switch x.Kind {
		case runner.CreateContainer:
			creations++
		case runner.StartContainer:
		default:
			return false
		}
	}
	return creations > 0 && a.Container != b.Container
}

func (f *Fake) finish(key manifests.Key, a runner.Action) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.busy[key], func(b runner.Action) bool { return b.Kind == a.Kind && b.Container == a.Container })
	f.busy[key] = slices.Delete(f.busy[key], i, i+1)
	if len(f.busy[key]) == 0 {
		delete(f.busy, key)
	}
}

// take lets the time of an action pass. Slow steps end with ctx, creations of containers when the pod is to be removed, and all with the
// agent.
func (f *Fake) take(ctx context.Context, a runner.Action, slow bool) error {
	switch {
	case f.Delay == nil:
		return ctx.Err()
	case !slow:
		ctx = context.WithoutCancel(ctx)
	}
	if a.Kind != runner.CreateContainer {
		return f.pass(ctx, f.Delay(a))
	}
	ctx, stop := runner.UntilRemoval(ctx)
	defer stop()
	if err := f.pass(ctx, f.Delay(a)); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// pass lets time pass. None needs no timer: two at once that are over when they are made crash the race detector in a bubble of
// synctest (golang/go#78156).
func (f *Fake) pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		select {
		case <-f.died:
			return ErrDead
		default:
			return ctx.Err()
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-f.died:
		return ErrDead
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Fake) removeSandboxLocked(key manifests.Key, p *fakePod, a runner.Action) {
	delete(f.places, key)
	if p.sandbox != nil && a.Remade {
		f.places[key] = p.sandbox.Pod
	}
	p.sandbox = nil
}

// effect changes the machine. after, if not nil, is to be called without the lock.
func (f *Fake) effect(key manifests.Key, pod *manifests.Pod, a runner.Action) (after func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, ErrDead
	}
	p := f.pods[key]
	if p == nil {
		p = &fakePod{}
		f.pods[key] = p
	}
	switch a.Kind {
	case runner.CheckPod:
		err = f.checkLocked(pod)
	case runner.CreateSandbox:
		f.createSandboxLocked(p, pod, a)
		delete(f.places, key)
	case runner.ReviveSandbox:
		err = f.reviveSandboxLocked(p, pod)
	case runner.SetupNetwork, runner.SyncVolumes:
	case runner.FailPod:
		if p.sandbox != nil && p.sandbox.Failed == nil {
			p.sandbox.Failed = &runner.PodFailure{Reason: a.Failure, Message: a.Message, Cause: a.FailureCause, At: f.nowLocked()}
		}
	case runner.RecordPod, runner.RecordEphemeral:
		err = f.recordLocked(p, pod, a)
	case runner.EnsureImage:
		err = f.imageLocked(spec(pod, a.Container))
	case runner.UpdateResources:
		resizeLocked(p, pod, a)
	case runner.RemoveSandbox:
		f.removeSandboxLocked(key, p, a)
	default:
		after, err = f.containerEffectLocked(key, p, pod, a)
	}
	if p.sandbox == nil && len(p.containers) == 0 {
		delete(f.pods, key)
	}
	if err != nil {
		return after, err
	}
	if !f.Forgetful {
		f.journal = append(f.journal, Entry{Key: key, Action: a, At: time.Now()})
	}
	f.applied++
	if f.killAt > 0 && f.applied >= f.killAt {
		f.killAt = 0
		f.dieLocked()
		return after, ErrDead
	}
	return after, nil
}

func (f *Fake) containerEffectLocked(key manifests.Key, p *fakePod, pod *manifests.Pod, a runner.Action) (func(), error) {
	if a.Kind == runner.CreateContainer {
		return nil, f.createLocked(p, pod, a)
	}
	i := slices.IndexFunc(p.containers, func(c *fakeContainer) bool { return c.ID == a.ContainerID })
	if a.Kind == runner.StartContainer {
		return f.startLocked(key, p, a, i)
	}
	if i < 0 {
		return nil, nil // gone already
	}
	c := p.containers[i]
	switch a.Kind {
	case runner.RecordHealth:
		c.Health = a.Health
	case runner.MarkStarted:
		c.PostStart = runner.PostStartDone
	case runner.MarkStopping:
		if c.StoppingAt.IsZero() {
			c.StoppingAt, c.StopCause = f.nowLocked(), a.Cause
		}
	case runner.StopContainer:
		if c.State == runner.ContainerRunning && c.StoppingAt.IsZero() && c.StopSentAt.IsZero() {
			c.StoppingAt, c.StopCause = f.nowLocked(), a.Cause
		}
		return f.stopLocked(key, c, a.Signal), nil
	case runner.KillContainer:
		if c.State == runner.ContainerRunning && !c.process.unkillable {
			f.exitLocked(c, 137, "")
			return func() { f.notify(key) }, nil
		}
	case runner.FinishContainer:
		if c.State == runner.ContainerExited {
			c.Recorded = true
		}
	case runner.RemoveContainer:
		c.stopTimer()
		c.leave()
		p.containers = slices.Delete(p.containers, i, i+1)
	default:
		return nil, fmt.Errorf("unknown action %q", a.Kind)
	}
	return nil, nil
}

func (f *Fake) checkLocked(pod *manifests.Pod) error {
	for c := range manifests.AllContainers(&pod.Object.Spec) {
		if err := f.imageLocked(c); err != nil {
			return err
		}
		if err := newProcess(c).createError; err != nil {
			return err
		}
	}
	return nil
}

func (f *Fake) imageLocked(c *corev1.Container) error {
	present, known := f.images[c.Image]
	if c.ImagePullPolicy == corev1.PullNever && known && !present {
		return &runner.StepError{
			Reason: runner.ReasonErrImageNeverPull,
			Err: cause.Wrap(
				fmt.Errorf("container image %q is not present with pull policy of Never", c.Image),
				cause.Cause{Kind: cause.ImageNeverPull, Image: c.Image},
			),
		}
	}
	f.images[c.Image] = true
	return nil
}

func (f *Fake) createSandboxLocked(p *fakePod, pod *manifests.Pod, a runner.Action) {
	if p.sandbox != nil {
		return
	}
	f.nextID++
	p.born = time.Now()
	p.sandbox = &runner.Sandbox{
		ID:        fmt.Sprintf("s%d", f.nextID),
		UID:       a.UID,
		Hash:      podhash.Sandbox(pod.Object),
		Pod:       pod,
		CreatedAt: f.nowLocked(),
		Alive:     true,
		Network:   runner.NetworkPending,
		Evictions: a.Evictions,

		QOSClass:      manifests.QOSClass(pod.Object),
		ResourcesHash: podhash.PodResources(pod.Object), Resources: inEffect(&pod.Object.Spec),
	}
	f.startNetworkLocked(p, pod)
}

func (f *Fake) reviveSandboxLocked(p *fakePod, pod *manifests.Pod) error {
	switch {
	case p.sandbox == nil:
		return fmt.Errorf("pod %s has no sandbox", pod.Key())
	case p.sandbox.Alive:
		return nil
	case p.sandbox.Hash != podhash.Sandbox(pod.Object):
		return fmt.Errorf("pod %s needs another sandbox", pod.Key())
	}
	revived := *p.sandbox
	revived.Alive, revived.Pod, revived.Network, revived.IPs = true, pod, runner.NetworkPending, nil
	p.sandbox = &revived
	f.startNetworkLocked(p, pod)
	return nil
}

// startNetworkLocked begins the set-up of a sandbox's network.
func (f *Fake) startNetworkLocked(p *fakePod, pod *manifests.Pod) {
	if pod.Object.Spec.HostNetwork {
		p.sandbox.Network = runner.NetworkReady
		return
	}
	f.adds[p.sandbox.ID] = add{end: time.Now().Add(f.NetworkDelay)}
	key := pod.Key()
	f.networkLocked(key, p)
	if f.NetworkDelay > 0 {
		time.AfterFunc(f.NetworkDelay, func() { f.notify(key) })
	}
}

// networkLocked completes a network set-up whose time has come.
func (f *Fake) networkLocked(key manifests.Key, p *fakePod) {
	if p.sandbox == nil || p.sandbox.Network == runner.NetworkReady {
		return
	}
	n, ok := f.adds[p.sandbox.ID]
	if !ok || n.over || time.Now().Before(n.end) {
		return
	}
	n.over = true
	if f.NetworkFail != nil {
		n.err = f.NetworkFail(key)
	}
	f.adds[p.sandbox.ID] = n
	if n.err == nil {
		p.sandbox.Network = runner.NetworkReady
		p.sandbox.IPs = []string{"10.0.0." + strings.TrimPrefix(p.sandbox.ID, "s")}
	}
}

// awaitNetwork waits for the network set-up of this agent. SetupNetwork begins one if there is none under way.
func (f *Fake) awaitNetwork(key manifests.Key, begin bool) error {
	f.mu.Lock()
	p := f.pods[key]
	if p == nil || p.sandbox == nil {
		f.mu.Unlock()
		return networkError("pod %s has no sandbox", key)
	}
	id := p.sandbox.ID
	n, begun := f.adds[id]
	if p.sandbox.Network == runner.NetworkPending && (!begun || n.over) && begin {
		n, begun = add{end: time.Now().Add(f.NetworkDelay)}, true
		f.adds[id] = n
	}
	ready := p.sandbox.Network == runner.NetworkReady
	f.mu.Unlock()
	if ready {
		return nil
	}
	if !begun {
		return networkError("pod %s has no network", key)
	}
	if err := f.pass(context.Background(), time.Until(n.end)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.networkLocked(key, p)
	if err := f.adds[id].err; err != nil {
		return networkError("%w", err)
	}
	return nil
}

func networkError(format string, args ...any) error {
	return &runner.StepError{Reason: runner.ReasonCreatePodSandboxError, Err: fmt.Errorf(format, args...)}
}

// needsAddress reports whether the environment of a container contains the pod's address.
func needsAddress(c *corev1.Container) bool {
	return c != nil && slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "status.podIP"
	})
}

func (p *fakePod) recordEphemeral(a runner.Action) error {
	if p.sandbox == nil || p.sandbox.UID != a.UID {
		return fmt.Errorf("no sandbox has the uid %s", a.UID)
	}
	p.sandbox.Ephemeral = runner.AddEphemeral(p.sandbox.Ephemeral, a.Ephemeral)
	return nil
}

func (f *Fake) recordLocked(p *fakePod, pod *manifests.Pod, a runner.Action) error {
	if a.Kind == runner.RecordEphemeral {
		return p.recordEphemeral(a)
	}
	if p.sandbox == nil {
		return fmt.Errorf("pod %s has no sandbox", pod.Key())
	}
	p.sandbox.Pod = pod
	return nil
}

// digestOf is that of an image: here a tag never moves.
func digestOf(image string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image))) }

func (f *Fake) createLocked(p *fakePod, pod *manifests.Pod, a runner.Action) error {
	c := spec(pod, a.Container)
	switch {
	case p.sandbox == nil || !p.sandbox.Alive:
		return &runner.StepError{Reason: runner.ReasonCreateContainerError, Err: fmt.Errorf("pod %s has no sandbox", pod.Key())}
	case c == nil:
		return fmt.Errorf("pod %s has no container %s", pod.Key(), a.Container)
	case !f.images[c.Image]:
		return &runner.StepError{Reason: runner.ReasonCreateContainerError, Err: fmt.Errorf("image %s is not present", c.Image)}
	case pod.Images[c.Name] != "" && pod.Images[c.Name] != digestOf(c.Image):
		return &runner.StepError{Reason: runner.ReasonImageInspectError, Err: fmt.Errorf("image %s@%s is not present", c.Image, pod.Images[c.Name])}
	}
	proc := newProcess(c)
	if proc.createError != nil && !a.OrExit {
		return proc.createError
	}
	f.nextID++
	postStart := runner.PostStartNone
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		postStart = runner.PostStartPending
	}
	p.containers = append(p.containers, &fakeContainer{
		Container: runner.Container{
			ID:            fmt.Sprintf("c%d", f.nextID),
			Name:          a.Container,
			SandboxID:     p.sandbox.ID,
			Hash:          podhash.Container(pod.Object, a.Container),
			ResourcesHash: podhash.Resources(pod.Object, a.Container),
			Resources:     new(manifests.Resizable(c.Resources)),
			PodResources:  new(manifests.PodResizable(&pod.Object.Spec)),
			Image:         c.Image,
			ImageID:       "sha256:" + c.Image,
			ImageDigest:   digestOf(c.Image),
			State:         runner.ContainerCreated,
			RestartCount:  a.RestartCount,
			BackOff:       a.BackOff,
			Last:          a.Last,
			CreatedAt:     f.nowLocked(),
			PostStart:     postStart,
			Round:         a.Round,
		},
		process: proc,
	})
	if proc.createError != nil {
		return f.refuseLocked(p.containers[len(p.containers)-1], proc.createError)
	}
	return nil
}

// refuseLocked ends an instance whose process cannot be started.
func (f *Fake) refuseLocked(c *fakeContainer, refusal error) error {
	now := f.nowLocked()
	c.State, c.StartedAt, c.Recorded = runner.ContainerExited, now, true
	c.Exit = &runner.Termination{
		ContainerID: c.ID, ExitCode: runner.ExitCodeStartError, Reason: runner.ReasonStartError,
		Message: refusal.Error(), StartedAt: now, FinishedAt: now, Cause: cause.Of(refusal),
	}
	return &runner.StepError{Reason: runner.ReasonStartError, Err: refusal}
}

// resizeLocked gives a container, or the pod, the resources of the manifest.
func resizeLocked(p *fakePod, pod *manifests.Pod, a runner.Action) {
	if a.Container == "" {
		if p.sandbox != nil {
			p.sandbox.ResourcesHash, p.sandbox.Resources = podhash.PodResources(pod.Object), inEffect(&pod.Object.Spec)
		}
		return
	}
	for _, c := range p.containers {
		if s := spec(pod, c.Name); c.ID == a.ContainerID && s != nil {
			c.ResourcesHash, c.Resources = podhash.Resources(pod.Object, c.Name), new(manifests.Resizable(s.Resources))
			c.PodResources = new(manifests.PodResizable(&pod.Object.Spec))
		}
	}
}

// inEffect returns what the cgroup of a pod enforces.
func inEffect(spec *corev1.PodSpec) *corev1.ResourceRequirements {
	r, limits := &corev1.ResourceRequirements{}, manifests.PodLimits(spec)
	if cpu, ok := manifests.PodRequests(spec)[corev1.ResourceCPU]; ok {
		r.Requests = corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !manifests.AllLimited(spec, name) {
			continue
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = limits[name]
	}
	return r
}

// startLocked starts the instance with index i or, when there is no id, the newest one that waits.
func (f *Fake) startLocked(key manifests.Key, p *fakePod, a runner.Action, i int) (func(), error) {
	if a.ContainerID == "" {
		for j, c := range p.containers {
			if c.Name == a.Container && c.State == runner.ContainerCreated {
				i = j
			}
		}
	}
	if i < 0 {
		return nil, fmt.Errorf("pod %s: no instance of %s to start", key, a.Container)
	}
	c := p.containers[i]
	if c.State != runner.ContainerCreated {
		return nil, nil
	}
	if c.process.startError != nil && a.OrExit {
		return nil, f.refuseLocked(c, c.process.startError)
	}
	if c.process.startError != nil {
		p.containers = slices.Delete(p.containers, i, i+1)
		return nil, c.process.startError
	}
	f.nextPID++
	c.State, c.StartedAt, c.PID = runner.ContainerRunning, f.nowLocked(), f.nextPID
	if c.process.runs {
		return nil, nil
	}
	f.endLaterLocked(key, c)
	return nil, nil
}

// endLaterLocked ends a process as its script prescribes.
func (m *Machine) endLaterLocked(key manifests.Key, c *fakeContainer) {
	over := func() { m.timeUp(key, c, c.process.code, c.process.reason) }
	if c.process.after <= 0 {
		go over() // see pass
		return
	}
	c.timer = time.AfterFunc(c.process.after, over)
}

// stopLocked signals a process as its script wants it.
func (f *Fake) stopLocked(key manifests.Key, c *fakeContainer, signal string) func() {
	if c.State != runner.ContainerRunning || !c.StopSentAt.IsZero() {
		return nil
	}
	c.StopSentAt = f.nowLocked()
	switch {
	case signal != "" && signal == c.process.signal:
		f.exitLocked(c, 5, "")
		return func() { f.notify(key) }
	case c.process.ignoresTerm:
		return nil
	case c.process.termAfter > 0:
		c.stopTimer()
		c.timer = time.AfterFunc(c.process.termAfter, func() { f.timeUp(key, c, c.process.termCode, "") })
		return nil
	}
	f.exitLocked(c, c.process.termCode, "")
	return func() { f.notify(key) }
}

func (m *Machine) timeUp(key manifests.Key, c *fakeContainer, code int, reason string) {
	m.mu.Lock()
	alive := c.State == runner.ContainerRunning
	if alive {
		m.exitLocked(c, code, reason)
	}
	m.mu.Unlock()
	if alive {
		m.notify(key)
	}
}

func spec(pod *manifests.Pod, name string) *corev1.Container {
	return manifests.FindContainer(&pod.Object.Spec, name)
}
