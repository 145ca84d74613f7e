package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
	"monopod/runner/podstatus"
	"monopod/runner/pool/activity"
	"monopod/runner/pool/occurrence"
)

// assignment is the order of the pool to a worker. It is a value; the latest one counts.
type assignment struct {
	// settled reports that the desired pods and the existing pods are known. Before, the worker observes but does not act.
	settled bool
	// desired is the desired manifest, nil if the pod is not desired.
	desired *manifests.Pod
	// objects resolve a recorded manifest; desired is resolved already.
	objects *manifests.Objects
	// held is why desired must wait.
	held *runner.Held
	// place is the manifest that a pod may have while it is being recreated and has no sandbox; nil if none.
	place *manifests.Pod
	// halt is why the pod must not run.
	halt *runner.Halt
	// evict orders the eviction of the pod.
	evict *plan.Eviction
	// graces are the grace periods of pods that are not desired, by uid.
	graces map[string]time.Duration
	// given are the conditions that others have set on the pod.
	given []corev1.PodCondition
	// removable reports whether a pod that is not desired may be removed.
	removable func(manifests.Origin) bool
	// keeps is Desired.Keeps.
	keeps func(was, now manifests.Origin) bool
}

// removes reports whether the pod is to be removed that was desired as was; nil: it was not.
func (a *assignment) removes(was *manifests.Pod) bool {
	return was != nil && a.desired == nil && a.removable(was.Origin) || a.halt != nil && a.halt.Remove
}

// subject is the pod of a worker as the worker knows it.
type subject struct {
	key      manifests.Key
	pool     *Pool
	ready    chan struct{} // a preparation has ended
	now      assignment    // the assignment of the current turn
	observed plan.Observed
	manifest *manifests.Pod // failures and preparations refer to it
	recorded *manifests.Pod // the last result of recordedPod
	made     []creationOf   // the last CreateContainer of each container
	warned   map[string]string
	removing bool
	reported reportedEvents
	shown    *corev1.Pod    // the last published pod
	last     *manifests.Pod // its manifest; nil if it had none
}

// recorder records the events of the pod.
type recorder struct{ subject }

// prober runs the probes of the pod.
type prober struct {
	recorder
	probing probing
}

// hookRunner runs the hooks of the pod.
type hookRunner struct {
	prober
	hooks map[plan.HookKey]*step
}

// preparer runs preparations in the background: image pulls and checks of pods.
type preparer struct {
	hookRunner
	preparation map[string]*step
}

// worker owns one pod: no other goroutine applies actions to it. All fields below the first group belong to its goroutine.
//
//	observe -> plan -> apply --+-> (again, until the plan is empty) -> wait for an event, the pool, or a time
//	   ^___________________________________________________________________________________________|
type worker struct {
	preparer
	events chan struct{}             // the pod may have changed
	assign chan struct{}             // the assignment has changed
	retry  atomic.Pointer[time.Time] // the back-off of failures before then is over
	doing  activity.Actions          // actions in progress

	blind    error
	blindFor int
	adopted  bool
	synced   *manifests.Pod // the manifest of the last SyncVolumes
	// since is when this agent first knew of the pod.
	since, syncedAt time.Time
	rounds          int // plans since the last empty one

	// additions are pending requests to add ephemeral containers; guarded by Pool.mu.
	additions []*addition

	parked *parked // guarded by Pool.mu; nil: it has a goroutine, or none yet
}

// maxRounds is the number of consecutive plans that a pod may need to converge. More means that actions fail without a back-off, or succeed
// without an effect; then the loop slows down.
const maxRounds = 8

// observeTimeout limits one observation. After that, the runtime counts as unreachable.
const observeTimeout = 30 * time.Second

func newWorker(p *Pool, key manifests.Key) *worker {
	w := &worker{events: make(chan struct{}, 1), assign: make(chan struct{}, 1), since: p.cfg.Now()}
	w.preparation, w.hooks = map[string]*step{}, map[plan.HookKey]*step{}
	w.subject = subject{key: key, pool: p, ready: make(chan struct{}, 1), warned: map[string]string{}}
	w.observed = plan.Observed{
		NewUID: p.cfg.NewUID(), Prepared: map[string]plan.Preparation{}, Failures: map[string]plan.Failure{}, Hooks: map[plan.HookKey]plan.HookState{},
		Killed: map[string]time.Time{}, Options: p.cfg.Options, Hashes: &podhash.Cache{},
	}
	return w
}

// log returns the logger of this pod. Most workers rarely log, so it is not stored.
func (w *subject) log() *slog.Logger { return w.pool.cfg.Log.With("pod", w.key.String()) }

// signal wakes the receiver of a channel of size one; a signal that is still pending covers this one as well.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// turn is the result of one round: observe again after wait (0 means never, a negative wait at once), or end.
type turn struct {
	wait time.Duration
	// ignoreEvents reports that not even an event shortens the wait.
	ignoreEvents bool
	end          bool
}

const (
	never  time.Duration = 0
	atOnce time.Duration = -1
)

// run works until ctx ends, or the pod is gone and not desired, or the worker only has to wait: see park.
func (w *worker) run(ctx context.Context) {
	if w.work(ctx) {
		return
	}
	w.dropProbes()
	w.dropHooks()
	w.dropPreparations()
}

// work reports whether the worker was parked; the caller must not use it then.
func (w *worker) work(ctx context.Context) bool {
	crashes := 0
	select {
	case <-w.events: // the first observation handles the event that woke a parked worker
	default:
	}
	for ctx.Err() == nil {
		t, err := guarded(func() turn { return w.turn(ctx) })
		w.tried()
		switch {
		case err != nil:
			crashes++
			t.wait = retry.Doubled(time.Second, time.Minute, crashes)
			w.log().Error("the worker crashed and is restarted", "err", err, "retry_in", t.wait)
			w.recordCrash(err)
			w.pool.reportCrash(w, err)
		case t.end:
			if w.pool.retire(w) {
				return false
			}
			continue
		default:
			crashes = 0
			if w.park(ctx, t) {
				return true
			}
		}
		w.sleep(ctx, t)
	}
	return false
}

// guarded calls f and turns a panic into an error, so that a failure of one pod does not affect the others.
func guarded[T any](f func() T) (result T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f(), nil
}

// waits returns how long the worker waits if no event occurs.
func (w *worker) waits(t turn) time.Duration {
	if resync := w.pool.cfg.Resync; t.wait == never || t.wait > resync {
		return resync
	}
	return t.wait
}

func (w *worker) sleep(ctx context.Context, t turn) {
	d, events := w.waits(t), w.events
	if d < 0 {
		return
	}
	if t.ignoreEvents {
		events = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-events:
	case <-w.ready:
	case <-w.assign:
	case <-timer.C:
	}
}

func (w *worker) turn(ctx context.Context) turn {
	w.now = w.pool.assignment(w)
	w.observed.Halt, w.observed.Evict, w.observed.Waits = w.now.halt, w.now.evict, w.now.held != nil
	if !w.observe(ctx) {
		return turn{wait: retry.Doubled(100*time.Millisecond, 5*time.Second, w.blindFor)}
	}
	if !w.now.settled {
		w.publish(time.Time{})
		return turn{wait: never}
	}
	if w.addEphemeral(ctx) {
		return turn{wait: atOnce}
	}
	w.yield()
	var pod *manifests.Pod
	pod, w.removing = w.choose()
	w.observed.Grace = w.graceAsked()
	w.refer(pod)
	w.watchProbes(ctx, pod)
	if pod == nil && !w.removing {
		w.publish(time.Time{})
		return turn{wait: never}
	}
	w.observed.Stale = w.stale(pod)
	w.observed.VolumesStale = pod != nil && pod != w.synced && manifests.FollowsEdits(&pod.Object.Spec)
	now := w.pool.cfg.Now()
	due := w.tokensDue(pod)
	if !due.IsZero() && !now.Before(due) {
		w.observed.VolumesStale = true
	}
	actions, next := plan.Plan(now, pod, w.observed)
	if !due.IsZero() && now.Before(due) && (next.IsZero() || due.Before(next)) {
		next = due
	}
	w.publish(next)
	if len(actions) == 0 {
		w.rounds = 0
		if w.removing && next.IsZero() && w.observed.Sandbox == nil {
			return turn{end: true}
		}
		return turn{wait: until(now, next)}
	}
	w.apply(ctx, pod, actions)
	if w.rounds++; w.rounds > maxRounds {
		wait := retry.Doubled(100*time.Millisecond, 5*time.Second, w.rounds-maxRounds)
		w.log().Debug("does not converge", "first", actions[0].String(), "retry_in", wait)
		return turn{wait: wait, ignoreEvents: true}
	}
	return turn{wait: atOnce}
}

// tokensDue returns when the tokens in the volumes of a pod must be checked again; zero if it has none. The interval is two fifths of the
// lifetime of a token.
func (w *worker) tokensDue(pod *manifests.Pod) time.Time {
	if pod == nil || pod != w.synced {
		return time.Time{}
	}
	seconds := min(manifests.ShortestToken(&pod.Object.Spec), maxTokenSeconds)
	if seconds == 0 {
		return time.Time{}
	}
	return w.syncedAt.Add(time.Duration(seconds) * time.Second / 5 * 2)
}

// maxTokenSeconds is the maximum time that a token is used, as with a kubelet.
const maxTokenSeconds = 24 * 60 * 60

func until(now, next time.Time) time.Duration {
	if next.IsZero() {
		return never
	}
	return max(next.Sub(now), time.Millisecond)
}

// yield treats the desired manifest as unknown if the recorded one has precedence.
func (w *worker) yield() {
	if w.observed.Sandbox == nil || w.now.desired == nil {
		return
	}
	was := originOf(w.observed.Sandbox)
	if w.now.keeps(was, w.now.desired.Origin) && !w.now.removable(was) {
		w.now.desired, w.now.held = nil, nil
	}
}

// choose returns the manifest to follow. removing reports that the pod must be removed; if neither is set, the worker must not act.
func (w *worker) choose() (pod *manifests.Pod, removing bool) {
	sb := w.observed.Sandbox
	w.observed.Kept = false
	if w.now.desired != nil && w.now.held == nil {
		return w.now.desired, false
	}
	switch {
	case w.now.desired == nil && (sb == nil && w.observed.Place == nil || w.now.removable(w.origin())):
		return nil, true
	case sb == nil && w.now.desired != nil && w.now.place != nil:
		w.recorded = manifests.WithRefs(w.now.place, w.recorded, w.now.objects)
		return w.recorded, false
	case sb == nil || sb.Pod == nil:
		return nil, false
	}
	w.observed.Kept = true
	return w.recordedPod(), false
}

// graceAsked returns the requested grace period of a pod that is removed; nil if the manifest decides.
func (w *subject) graceAsked() *time.Duration {
	if !w.removing {
		return nil
	}
	uid := ""
	if sb := w.observed.Sandbox; sb != nil {
		uid = sb.UID
	} else if w.shown != nil {
		uid = string(w.shown.UID)
	}
	if d, ok := w.now.graces[uid]; ok {
		return &d
	}
	return nil
}

// stale returns the created instances whose content may have changed since their creation.
func (w *preparer) stale(pod *manifests.Pod) map[string]bool {
	var stale map[string]bool
	for i := range w.observed.Containers {
		c := &w.observed.Containers[i]
		if c.State != runner.ContainerCreated || pod == nil || w.madeFor(c.Name, pod) {
			continue
		}
		if spec := plan.ContainerSpec(pod, c.Name); spec != nil && manifests.ReadsOnce(spec) {
			if stale == nil {
				stale = map[string]bool{}
			}
			stale[c.ID] = true
		}
	}
	return stale
}

// madeFor reports whether this agent created the newest instance of a container from this manifest and content.
func (w *subject) madeFor(name string, pod *manifests.Pod) bool {
	i := slices.IndexFunc(w.made, func(c creationOf) bool { return c.container == name })
	if i < 0 {
		return false
	}
	was := w.made[i].pod
	return was == pod || manifests.SameRefs(was, pod) && w.observed.Hashes.Pod(was) == w.observed.Hashes.Pod(pod)
}

// creationOf is a container that this agent created, with its manifest and the referenced objects.
type creationOf struct {
	container string
	pod       *manifests.Pod
}

// makes records what a container was created from.
func (w *preparer) makes(container string, pod *manifests.Pod) {
	w.made = slices.DeleteFunc(w.made, func(c creationOf) bool { return c.container == container })
	w.made = append(w.made, creationOf{container, pod})
}

// recordedPod returns the manifest of the sandbox with resolved references.
func (w *preparer) recordedPod() *manifests.Pod {
	w.recorded = manifests.WithRefs(w.observed.Sandbox.Pod, w.recorded, w.now.objects)
	return w.recorded
}

// origin returns the origin of the existing, or else the previous, sandbox.
func (w *subject) origin() manifests.Origin {
	if w.observed.Sandbox == nil && w.observed.Place != nil {
		return w.observed.Place.Origin
	}
	return originOf(w.observed.Sandbox)
}

func originOf(sb *runner.Sandbox) manifests.Origin {
	if sb == nil || sb.Pod == nil {
		return manifests.Origin{}
	}
	return sb.Pod.Origin
}

// observe reads the state of the pod. On an error, the previous observation stays.
func (w *worker) observe(ctx context.Context) bool {
	observeCtx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	state, err := w.pool.rt.Observe(observeCtx, w.key)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		w.blind = fmt.Errorf("observe: %w", err)
		w.blindFor++
		w.warn("observe", w.blind)
		w.publish(time.Time{})
		return false
	}
	if w.blind != nil {
		w.log().Info("the pod can be observed again")
		delete(w.warned, "observe")
	}
	w.blind, w.blindFor = nil, 0
	w.reported.uid = ""
	if state.Sandbox != nil {
		w.reported.uid = state.Sandbox.UID
	}
	w.tell(state)
	w.observed.PodState = state
	w.collect()
	w.collectHooks()
	if at := w.retry.Swap(nil); at != nil {
		w.retryNow(*at)
	}
	for id := range w.observed.Killed {
		if w.instance(id) == nil {
			delete(w.observed.Killed, id)
		}
	}
	return true
}

// retryNow ends the back-off of all failures before at, but keeps the failures.
func (w *worker) retryNow(at time.Time) {
	for key, f := range w.observed.Failures {
		if f.At.Before(at) {
			f.At = time.Time{}
			w.observed.Failures[key] = f
		}
	}
}

// instance returns a container of the latest observation; nil if it is missing.
func (w *subject) instance(id string) *runner.Container {
	for i := range w.observed.Containers {
		if c := &w.observed.Containers[i]; c.ID == id {
			return c
		}
	}
	return nil
}

// tell logs what happened to the pod since the previous observation.
func (w *worker) tell(state runner.PodState) {
	if state.Sandbox != nil && !w.adopted && w.observed.Sandbox == nil {
		w.log().Info("pod adopted", "uid", state.Sandbox.UID, "containers", len(state.Containers))
	}
	w.adopted = true
	before := map[string]runner.ContainerState{}
	for i := range w.observed.Containers {
		before[w.observed.Containers[i].ID] = w.observed.Containers[i].State
	}
	for i := range state.Containers {
		c := &state.Containers[i]
		if c.State != runner.ContainerExited || c.Exit == nil || c.Recorded || before[c.ID] == runner.ContainerExited {
			continue
		}
		args := []any{"container", c.Name, "exitCode", c.Exit.ExitCode, "reason", c.Exit.Reason}
		if !c.Exit.FinishedAt.IsZero() && !c.StartedAt.IsZero() {
			args = append(args, "ran", c.Exit.FinishedAt.Sub(c.StartedAt).Round(time.Millisecond))
		}
		w.log().Info("container exited", args...)
		if c.Exit.Reason != runner.ReasonStartError { // it was recorded when the start was tried
			w.record(c.Name, occurrence.Exit(c.Exit, c.Leaving()))
		}
	}
}

// refer associates failures and preparations with pod: those of another definition are dropped.
func (w *worker) refer(pod *manifests.Pod) {
	if pod == w.manifest {
		return
	}
	h := w.observed.Hashes
	if pod == nil || w.manifest == nil || h.Pod(pod) != h.Pod(w.manifest) {
		clear(w.observed.Failures)
		clear(w.warned)
		w.dropObsolete(pod)
		w.rounds = 0
	} else if pod.Refs != w.manifest.Refs {
		// Objects that were missing may exist now.
		w.retryNow(w.pool.cfg.Now().Add(1))
		w.dropObsolete(pod)
	}
	w.manifest = pod
}

// publish reports the status of the pod to the pool.
func (w *worker) publish(next time.Time) {
	in := podstatus.Input{
		Now: w.pool.cfg.Now(), Since: w.since,
		Key:      w.key,
		Desired:  w.now.desired,
		Last:     w.last,
		Observed: w.observed,
		Held:     w.now.held,
		Blind:    w.blind,
		Removing: w.removing,
		Next:     next,
		Node:     w.pool.node(),
		Given:    w.now.given,
	}
	r := report{status: podstatus.Of(in), seen: w.adopted}
	if w.removing {
		r.status.Pod = podstatus.WithEnds(w.shown, r.status.Pod)
	}
	w.shown = r.status.Pod
	if sb := w.observed.Sandbox; w.now.desired != nil {
		w.last = w.now.desired
	} else if sb != nil && sb.Pod != nil {
		w.last = sb.Pod
	}
	w.recordLook(r.status.Pod)
	r.status.Looked = w.adopted
	if sb := w.observed.Sandbox; sb != nil {
		r.holds, r.uid = sb.Pod, types.UID(sb.UID)
	} else {
		r.place = w.observed.Place
	}
	w.pool.report(w, r)
}

// warn logs a failure once for each text.
func (w *preparer) warn(key string, err error, args ...any) {
	args = append(args, "err", err)
	if w.warned[key] == err.Error() {
		w.log().Debug("still failing", args...)
		return
	}
	w.warned[key] = err.Error()
	w.log().Warn("failing", args...)
}

// fail records a failed action.
func (w *preparer) fail(a runner.Action, failed error) {
	err := fmt.Errorf("%s: %w", verb(a.Kind), failed)
	f := plan.Failure{Reason: failureReason(a, err), Message: err.Error(), Count: 1, At: w.pool.cfg.Now()}
	f.Cause = failureCause(f.Reason, a.Container, failed)
	key := plan.FailureKey(a)
	if f.Reason == runner.ReasonCreatePodSandboxError || f.Reason == runner.ReasonHostPortConflict {
		key = plan.ManifestKey(a.Manifest, "")
	}
	if last, ok := w.observed.Failures[key]; ok && last.IsImage() == f.IsImage() {
		f.Count = last.Count + 1
	}
	w.observed.Failures[key] = f
	args := []any{"action", string(a.Kind), "reason", f.Reason, "retry_in", f.Due().Sub(f.At)}
	if a.Container != "" {
		args = append(args, "container", a.Container)
	}
	w.warn(key, err, args...)
	w.recordFailed(a, f, failed)
}

// failureCause returns the cause of an error, or else the one that its waiting reason stands for.
func failureCause(reason, container string, err error) cause.Cause {
	c := cause.Of(err)
	if c.Kind == "" {
		c.Kind = cause.Start
		switch reason {
		case runner.ReasonErrImagePull:
			c.Kind = cause.ImagePull
		case runner.ReasonImageInspectError:
			c.Kind = cause.ImageBroken
		case runner.ReasonErrImageNeverPull:
			c.Kind = cause.ImageNeverPull
		case runner.ReasonInvalidImageName:
			c.Kind = cause.ImageName
		case runner.ReasonImageNotAllowed:
			c.Kind = cause.ImageNotAllowed
		case runner.ReasonSignatureValidationFailed:
			c.Kind = cause.ImageUnsigned
		case runner.ReasonFailedMount:
			c.Kind = cause.Mount
		case runner.ReasonCreatePodSandboxError:
			c.Kind = cause.Sandbox
		case runner.ReasonHostPortConflict:
			c.Kind = cause.HostPortProcess
		case runner.ReasonPostStartHookError:
			c.Kind = cause.Hook
		case runner.ReasonResizeError:
			c.Kind = cause.Resize
		case runner.ReasonCreateContainerConfigError, runner.ReasonAppArmor:
			c.Kind = cause.Config
		}
	}
	c.Container, c.Detail = cmp.Or(c.Container, container), cmp.Or(c.Detail, err.Error())
	return c
}

// failureReason returns the waiting reason of an error.
func failureReason(a runner.Action, err error) string {
	if se, ok := errors.AsType[*runner.StepError](err); ok && se.Reason != "" {
		return se.Reason
	}
	switch a.Kind {
	case runner.EnsureImage:
		return runner.ReasonErrImagePull
	case runner.StartContainer:
		return runner.ReasonRunContainerError
	case runner.CheckPod:
		return runner.ReasonCreateContainerConfigError
	case runner.SyncVolumes:
		return runner.ReasonFailedMount
	case runner.CreateSandbox, runner.ReviveSandbox, runner.SetupNetwork:
		return runner.ReasonCreatePodSandboxError
	case runner.UpdateResources:
		return runner.ReasonResizeError
	}
	return runner.ReasonCreateContainerError
}

// succeed forgets the failures that a successful action proves to be over. The creation of a container proves nothing; only its start does.
func (w *preparer) succeed(a runner.Action) {
	key := plan.FailureKey(a)
	f, failed := w.observed.Failures[key]
	if !failed || a.Kind == runner.CreateContainer || a.Kind == runner.EnsureImage && !f.IsImage() {
		return
	}
	delete(w.observed.Failures, key)
	delete(w.warned, key)
}
