package pool

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/admit"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
	"monopod/runner/pool/occurrence"
	"monopod/runner/probe"
)

// reportedEvents is what the worker has already recorded and must not record again at each observation.
type reportedEvents struct {
	// tried reports that the pool knows that the pod has been observed.
	tried bool
	// uid is the uid of the sandbox that was created last.
	uid string
	// killing has the ids of the instances whose stop has been recorded.
	killing map[string]bool
	// backOff is, by container, the id of the instance whose successor waits.
	backOff map[string]string
	// held is why the pod waits for others.
	held string
}

// ref returns a reference to the pod, or with a name to one of its containers.
func (w *recorder) ref(container string) corev1.ObjectReference {
	r := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.key.Namespace, Name: w.key.Name, UID: types.UID(w.uid())}
	pod := w.manifest
	if sb := w.observed.Sandbox; pod == nil && sb != nil {
		pod = sb.Pod
	}
	switch {
	case w.isEphemeral(container):
		r.FieldPath = "spec.ephemeralContainers{" + container + "}"
	case container != "":
		r.FieldPath = fieldPath(pod, container)
	}
	return r
}

// uid returns the uid of the sandbox, or else that of the next one.
func (w *subject) uid() string {
	switch {
	case w.reported.uid != "":
		return w.reported.uid
	case w.now.desired != nil && w.now.desired.Object.UID != "":
		return string(w.now.desired.Object.UID)
	}
	return w.observed.NewUID
}

// fieldPath returns the name of a container in events.
func fieldPath(pod *manifests.Pod, container string) string {
	if pod != nil && retry.RoleIn(&pod.Object.Spec, container) != retry.Regular {
		return "spec.initContainers{" + container + "}"
	}
	return "spec.containers{" + container + "}"
}

func (w *recorder) record(container string, o occurrence.Event) {
	w.pool.cfg.Events.Event(w.ref(container), o.Kind, o.Reason, o.Message)
}

// recordApplied records the event of an action. The stop of an instance is recorded once, however many actions it takes.
func (w *recorder) recordApplied(a runner.Action) {
	if a.Kind == runner.CreateSandbox {
		w.reported.uid = a.UID
	}
	o, ok := occurrence.Applied(a, w.removing)
	if a.Kind == runner.MarkStopping || a.Kind == runner.StopContainer {
		ok = ok && !w.reported.killing[a.ContainerID]
		if w.reported.killing == nil {
			w.reported.killing = map[string]bool{}
		}
		w.reported.killing[a.ContainerID] = true
	}
	if ok {
		w.record(a.Container, o)
	}
}

// recordFailed records an action that failed with a waiting reason.
func (w *recorder) recordFailed(a runner.Action, f plan.Failure, err error) {
	image := ""
	if w.isEphemeral(a.Container) {
		for i := range w.observed.Sandbox.Ephemeral {
			if e := &w.observed.Sandbox.Ephemeral[i]; e.Name == a.Container {
				image = e.Image
			}
		}
	} else if w.manifest != nil {
		if spec := plan.ContainerSpec(w.manifest, a.Container); spec != nil {
			image = spec.Image
		}
	}
	image = cmp.Or(f.Cause.Image, image) // that of a volume is another one
	w.record(a.Container, occurrence.Failed(a, f, image, err))
	if f.Reason == runner.ReasonErrImagePull {
		w.record(a.Container, occurrence.Normal(occurrence.ReasonBackOff, "Back-off pulling image %q", image))
	}
}

// recordLook records observed changes that no action of this worker has caused. Exits are recorded where they are logged, see tell.
func (w *recorder) recordLook(status *corev1.Pod) {
	for id := range w.reported.killing {
		if w.instance(id) == nil {
			delete(w.reported.killing, id)
		}
	}
	if h := w.now.held; h == nil {
		w.reported.held = ""
	} else if h.Reason != admit.ReasonStarting && h.Message != w.reported.held {
		w.reported.held = h.Message
		w.record("", occurrence.Warning(h.Reason, "%s", h.Message))
	}
	for _, list := range [][]corev1.ContainerStatus{status.Status.InitContainerStatuses, status.Status.ContainerStatuses} {
		for i := range list {
			w.recordBackOff(&list[i])
		}
	}
}

// recordBackOff records, once for each instance that has ended, that its successor has to wait.
func (w *recorder) recordBackOff(c *corev1.ContainerStatus) {
	if c.State.Waiting == nil || c.State.Waiting.Reason != runner.ReasonCrashLoopBackOff || w.reported.backOff[c.Name] == c.ContainerID {
		return
	}
	if w.reported.backOff == nil {
		w.reported.backOff = map[string]string{}
	}
	w.reported.backOff[c.Name] = c.ContainerID
	w.record(c.Name, occurrence.Warning(occurrence.ReasonBackOff, "Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, w.key.Name, w.key.Namespace, w.uid()))
}

// recordHook records a hook that has failed.
func (w *recorder) recordHook(container string, kind runner.HookKind, err error) {
	if kind == runner.PreStopHook {
		w.record(container, occurrence.Warning(occurrence.ReasonFailedPreStopHook, "PreStopHook failed: %v", err))
		return
	}
	w.record(container, occurrence.Warning(occurrence.ReasonFailedPostStartHook, "PostStartHook failed: %v", err))
}

// imageProgress returns the context of a preparation that records the progress of images, even if the worker does something else by then.
func (w *recorder) imageProgress(ctx context.Context, a runner.Action) context.Context {
	if _, nobody := w.pool.cfg.Events.(noRecorder); nobody || a.Kind != runner.EnsureImage {
		return ctx
	}
	ref := w.ref(a.Container)
	return runner.WithImageProgress(ctx, func(p runner.ImageProgress) {
		o := occurrence.Progress(p)
		w.pool.cfg.Events.Event(ref, o.Kind, o.Reason, o.Message)
	})
}

// probeRecorder returns a function that records unsuccessful attempts of a container's probes.
func (w *recorder) probeRecorder(container string) func(probe.Kind, probe.Outcome) {
	ref := w.ref(container)
	return func(kind probe.Kind, outcome probe.Outcome) {
		o := occurrence.Probe(kind, outcome)
		w.pool.cfg.Events.Event(ref, o.Kind, o.Reason, o.Message)
	}
}

// recordCrash records a crash of the worker itself.
func (w *recorder) recordCrash(err error) {
	w.record("", occurrence.Warning(occurrence.ReasonFailedSync, "internal error: %s", printer.FirstLine(err.Error())))
}

// noRecorder discards events.
type noRecorder struct{}

// Event implements Recorder.
func (noRecorder) Event(corev1.ObjectReference, string, string, string) {}
