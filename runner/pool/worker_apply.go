package pool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/pool/occurrence"
	"monopod/runner/pool/turns"
)

const (
	// detachAfter is how long the loop waits for EnsureImage and CheckPod before it continues without them: long enough to find an existing
	// image, even on a busy machine.
	detachAfter = 100 * time.Millisecond
	// actionTimeout limits actions that must not be canceled, in case the runtime hangs.
	actionTimeout = 2 * time.Minute
	// shutdownGrace is how long an action may take when the agent stops.
	shutdownGrace = 10 * time.Second
)

// outcome is the result of one action.
type outcome int

const (
	applied outcome = iota
	failed
	detached // continues in the background
	dropped  // not applied, or not completely: the agent stops, or there is a newer assignment
)

// replacesLater reports whether rest removes the sandbox, which must not happen unless all earlier actions succeed.
func replacesLater(rest []runner.Action) bool {
	return slices.ContainsFunc(rest, func(a runner.Action) bool { return a.Kind == runner.RemoveSandbox })
}

// reassigned reports whether the pool has a newer assignment.
func (w *worker) reassigned() bool { return len(w.assign) > 0 }

// followed returns the manifest that an action follows, for an action on an ephemeral container with the ephemeral containers.
func (w *worker) followed(pod *manifests.Pod, a runner.Action) *manifests.Pod {
	if a.Manifest == runner.RecordedManifest && w.observed.Sandbox != nil && w.observed.Sandbox.Pod != nil {
		pod = w.recordedPod()
	}
	if pod != nil && w.isEphemeral(a.Container) {
		pod = manifests.WithEphemeral(pod, w.observed.Sandbox.EphemeralOf(&pod.Object.Spec))
		return manifests.WithRefs(pod, nil, w.now.objects)
	}
	return pod
}

// do applies an action. It does not wait for an image once meanwhile has a value, because the worker then has something else to do.
func (w *worker) do(ctx context.Context, pod *manifests.Pod, a runner.Action, meanwhile chan creation) outcome {
	switch a.Kind {
	case runner.EnsureImage, runner.CheckPod:
		return w.prepare(ctx, pod, a, meanwhile)
	case runner.RunHook:
		w.runHook(ctx, a)
		return applied
	case runner.StopContainer:
		w.endHooks(a.ContainerID)
	}
	return w.book(ctx, pod, a, w.act(ctx, pod, a))
}

// act applies an action through the runtime.
func (w *worker) act(ctx context.Context, pod *manifests.Pod, a runner.Action) error {
	ctx, cancel := outlive(ctx)
	defer cancel()
	ctx, end := w.doing.Begin(ctx, a, w.pool.cfg.Now)
	defer end()
	return w.pool.rt.Apply(ctx, w.key, pod, a)
}

// book records the result of an action.
func (w *worker) book(ctx context.Context, pod *manifests.Pod, a runner.Action, err error) outcome {
	w.consume(a)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, runner.ErrRemoved) {
			return dropped
		}
		if se, ok := errors.AsType[*runner.StepError](err); ok && se.Reason == runner.ReasonStartError {
			w.log().Warn("container could not be started", "container", a.Container, "reason", a.Reason, "err", err)
			w.record(a.Container, occurrence.Failed(a, plan.Failure{Reason: se.Reason}, "", err))
			return failed // an exit, which the next observation finds
		}
		w.fail(a, err)
		return failed
	}
	w.succeed(a)
	w.logApplied(a)
	w.recordApplied(a)
	switch a.Kind {
	case runner.KillContainer:
		w.observed.Killed[a.ContainerID] = w.pool.cfg.Now()
	case runner.SyncVolumes:
		w.synced, w.syncedAt = pod, w.pool.cfg.Now()
	case runner.CreateContainer:
		w.makes(a.Container, pod)
	case runner.CreateSandbox:
		w.observed.NewUID = w.pool.cfg.NewUID()
	}
	return applied
}

// outlive returns a context for an action that must not be interrupted: it does not end immediately with ctx.
func outlive(ctx context.Context) (context.Context, func()) {
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTimeout)
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(shutdownGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-c.Done():
		}
	})
	return c, func() { stop(); cancel() }
}

// slot is a place among the pods that start concurrently; the zero slot holds none.
type slot struct {
	from   *turns.Turns
	ticket *turns.Ticket
}

func (s *slot) release() {
	if s.from != nil {
		s.ticket.Release()
		s.from, s.ticket = nil, nil
	}
}

// acquire takes a slot before the first action that needs one. It is held until the plan ends, so that pods that have begun to start
// complete their start before others begin. Removals are limited separately from starts, and signals are not limited: neither may wait for
// a pod that waits for its network.
func (w *worker) acquire(ctx context.Context, s *slot, kind runner.ActionKind) bool {
	var from *turns.Turns
	switch kind {
	case runner.CreateSandbox, runner.ReviveSandbox, runner.SetupNetwork, runner.CreateContainer, runner.StartContainer:
		from = w.pool.starts
	case runner.FinishContainer, runner.RemoveContainer, runner.RemoveSandbox:
		from = w.pool.stops
	default:
		return true
	}
	if s.from != nil {
		if s.from == from || from == w.pool.stops {
			return true
		}
		s.release()
	}
	ticket := from.Ask(w.priority())
	w.tried()
	select {
	case <-ticket.Granted:
		s.from, s.ticket = from, ticket
		return true
	default:
	}
	select {
	case <-ticket.Granted:
		s.from, s.ticket = from, ticket
		return true
	case <-ctx.Done():
	case <-w.assign:
		signal(w.assign)
	}
	ticket.Release()
	return false
}

// tried reports once to the pool that the pod has been observed since the desired state is known.
func (w *worker) tried() {
	if w.now.settled && !w.reported.tried {
		w.reported.tried = true
		w.pool.tried(w)
	}
}

// priority returns the priority of the desired pod.
func (w *worker) priority() int32 {
	if w.now.desired == nil {
		return 0
	}
	return manifests.PriorityOf(w.now.desired).Value
}

// step is an action in the background, running or over: an EnsureImage, a CheckPod or a hook. Its goroutine writes err, then closes over.
type step struct {
	action runner.Action
	cancel context.CancelFunc
	over   chan struct{}
	err    error
	// stopped reports that it was canceled rather than failed.
	stopped bool
}

// background starts an action that may take Action.Timeout; do carries it out.
func (w *recorder) background(ctx context.Context, a runner.Action, do func(context.Context) error) *step {
	ctx, cancel := withTimeout(ctx, a.Timeout)
	s := &step{action: a, cancel: cancel, over: make(chan struct{})}
	w.pool.group.Go(func() {
		defer signal(w.ready) // after over is closed, because the woken worker reads it
		defer close(s.over)
		s.err = contained(func() error { return do(ctx) })
		s.stopped = errors.Is(ctx.Err(), context.Canceled)
	})
	return s
}

// withTimeout is context.WithTimeout, but 0 means no timeout.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d > 0 {
		return context.WithTimeout(ctx, d)
	}
	return context.WithCancel(ctx)
}

// contained turns a panic of f into an error.
func contained(f func() error) error {
	err, crash := guarded(f)
	return errors.Join(err, crash)
}

// prepare runs a slow step in a goroutine and waits briefly for it, unless there is other work meanwhile.
func (w *worker) prepare(ctx context.Context, pod *manifests.Pod, a runner.Action, meanwhile chan creation) outcome {
	p := w.background(w.imageProgress(ctx, a), a, func(ctx context.Context) error { return w.pool.rt.Apply(ctx, w.key, pod, a) })
	w.preparation[a.Container] = p
	w.observed.Prepared[a.Container] = plan.PreparationRunning
	timer := time.NewTimer(detachAfter)
	defer timer.Stop()
	select {
	case <-p.over:
		select {
		case <-w.ready: // no wake-up needed; the next turn notices what else has ended
		default:
		}
		return w.settlePreparation(p)
	case <-timer.C:
		w.log().Debug("continues in the background", "action", a.String())
		return detached
	case c := <-meanwhile:
		meanwhile <- c
		w.log().Debug("continues in the background, with other actions", "action", a.String())
		return detached
	case <-w.assign:
		signal(w.assign)
	case <-ctx.Done():
	}
	return dropped
}

// settlePreparation records the result of a preparation that is over.
func (w *preparer) settlePreparation(p *step) outcome {
	p.cancel()
	if p.err == nil {
		w.observed.Prepared[p.action.Container] = plan.PreparationDone
		w.succeed(p.action)
		return applied
	}
	w.forget(p.action.Container)
	if p.stopped {
		return dropped
	}
	w.fail(p.action, p.err)
	return failed
}

// collect records the preparations that have ended in the background.
func (w *preparer) collect() {
	for name, p := range w.preparation {
		select {
		case <-p.over:
			if w.observed.Prepared[name] == plan.PreparationRunning {
				w.settlePreparation(p)
			}
		default:
		}
	}
}

// forget cancels a preparation, or drops its result.
func (w *preparer) forget(name string) {
	if p, ok := w.preparation[name]; ok {
		p.cancel()
		delete(w.preparation, name)
		delete(w.observed.Prepared, name)
	}
}

// consume drops the preparations that an action has used: the next action needs new ones.
func (w *preparer) consume(a runner.Action) {
	switch {
	case a.Manifest != runner.DesiredManifest && !w.isEphemeral(a.Container):
	case a.Kind == runner.CreateContainer:
		w.forget(a.Container)
	case a.Kind == runner.CreateSandbox:
		w.forget("")
	}
}

// dropObsolete cancels preparations that a new manifest does not need.
func (w *preparer) dropObsolete(pod *manifests.Pod) {
	w.forget("")
	for name := range w.preparation {
		if pod == nil || w.manifest == nil || !sameImage(pod, w.manifest, name) {
			w.forget(name)
		}
	}
}

func (w *preparer) dropPreparations() {
	for name := range w.preparation {
		w.forget(name)
	}
}

// sameImage reports whether both manifests have the same image and pull settings for a container.
func sameImage(a, b *manifests.Pod, name string) bool {
	x, y := plan.ContainerSpec(a, name), plan.ContainerSpec(b, name)
	return x != nil && y != nil && x.Image == y.Image && x.ImagePullPolicy == y.ImagePullPolicy && manifests.SameImages(a, b)
}

// logApplied logs an action: transitions at level Info or Warn, intermediate steps at level Debug.
func (w *worker) logApplied(a runner.Action) {
	args := make([]any, 0, 6)
	if a.Container != "" {
		args = append(args, "container", a.Container)
	}
	if a.Reason != "" {
		args = append(args, "reason", a.Reason)
	}
	switch a.Kind {
	case runner.CreateSandbox:
		w.log().Info("pod created", append(args, "uid", a.UID)...)
	case runner.FailPod:
		w.log().Warn("pod has failed", args...)
	case runner.ReviveSandbox:
		w.log().Info("pod sandbox restored", args...)
	case runner.RecordPod:
		w.log().Info("manifest recorded", args...)
	case runner.RecordEphemeral:
		w.log().Info("ephemeral containers added", "containers", namesOf(a.Ephemeral))
	case runner.UpdateResources:
		w.log().Info("resources updated", args...)
	case runner.StartContainer:
		w.log().Info("container started", args...)
	case runner.RecordHealth:
		w.log().Info("container is "+a.Health.String(), "container", a.Container)
	case runner.MarkStopping:
		w.log().Info("stopping container", args...)
	case runner.StopContainer:
		w.log().Info("stop signal sent to container", args...)
	case runner.KillContainer:
		w.log().Info("container killed", args...)
	case runner.RemoveSandbox:
		w.log().Info("pod removed", args...)
	default:
		w.log().Debug(verb(a.Kind), args...)
	}
}

// verb returns the action in words, as in "create container: <error>".
func verb(k runner.ActionKind) string {
	switch k {
	case runner.ReviveSandbox:
		return "restore sandbox"
	case runner.SetupNetwork:
		return "set up network"
	case runner.RecordPod:
		return "record manifest"
	case runner.RecordEphemeral:
		return "record ephemeral containers"
	case runner.EnsureImage:
		return "get image"
	case runner.MarkStopping:
		return "mark container as stopping"
	case runner.MarkStarted:
		return "mark container as started"
	case runner.FailPod:
		return "record that the pod has failed"
	}
	var words strings.Builder
	for i, r := range string(k) {
		if unicode.IsUpper(r) && i > 0 {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	return words.String()
}
