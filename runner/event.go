package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/probe"
)

// Recorder keeps what happens to pods, for people to look at. eventType is Normal or Warning. It must not block.
type Recorder interface {
	Event(object corev1.ObjectReference, eventType, reason, message string)
}

// noRecorder keeps nothing.
type noRecorder struct{}

// Event implements Recorder.
func (noRecorder) Event(corev1.ObjectReference, string, string, string) {}

// Reasons of events, spelled as kubelet spells them. Those of Held, of Sandbox.Failed and of some failures are reasons
// of events as well.
const (
	EventPulling                = "Pulling"
	EventPulled                 = "Pulled"
	EventCreated                = "Created"
	EventStarted                = "Started"
	EventKilling                = "Killing"
	EventBackOff                = "BackOff"
	EventFailed                 = "Failed"
	EventInspectFailed          = "InspectFailed"
	EventUnhealthy              = "Unhealthy"
	EventProbeWarning           = "ProbeWarning"
	EventFailedPostStartHook    = "FailedPostStartHook"
	EventFailedPreStopHook      = "FailedPreStopHook"
	EventFailedCreatePodSandBox = "FailedCreatePodSandBox"
	EventSandboxChanged         = "SandboxChanged"
	EventFailedKillPod          = "FailedKillPod"
	EventFailedSync             = "FailedSync"
	EventResizeCompleted        = "ResizeCompleted"
	EventResizeError            = "ResizeError"
	// EventExited is ours: a process has ended. A kubelet tells that in the status only, where the next exit hides it.
	EventExited = "Exited"
)

// occurrence is an event without the object that it is about.
type occurrence struct {
	kind, reason, message string
}

func normal(reason, format string, args ...any) occurrence {
	return occurrence{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) occurrence {
	return occurrence{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// ImageProgress is what EnsureImage tells of an image while it works.
type ImageProgress struct {
	Image string
	// Pulling says that it is being fetched now. Otherwise it is here: it has been fetched, or was here already.
	Pulling bool
	// Present says that it was here already.
	Present bool
	// Took is how long fetching it took, Size its compressed size in bytes, 0 if that is not known.
	Took time.Duration
	Size int64
}

// event is the progress in kubelet's words.
func (p ImageProgress) event() occurrence {
	switch {
	case p.Pulling:
		return normal(EventPulling, "Pulling image %q", p.Image)
	case p.Present:
		return normal(EventPulled, "Container image %q already present on machine and can be accessed by the pod", p.Image)
	}
	took := p.Took.Round(time.Millisecond)
	return normal(EventPulled, "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", p.Image, took, took, p.Size)
}

type imageProgressKey struct{}

// WithImageProgress returns a context for EnsureImage: tell, which must not block, hears what becomes of the images, as who
// hears it already does.
func WithImageProgress(ctx context.Context, tell func(ImageProgress)) context.Context {
	if others, ok := ctx.Value(imageProgressKey{}).(func(ImageProgress)); ok {
		also := tell
		tell = func(p ImageProgress) { others(p); also(p) }
	}
	return context.WithValue(ctx, imageProgressKey{}, tell)
}

// TellsImageProgress says that somebody hears what TellImageProgress tells.
func TellsImageProgress(ctx context.Context) bool { return ctx.Value(imageProgressKey{}) != nil }

// TellImageProgress is called by a Runtime while it ensures an image.
func TellImageProgress(ctx context.Context, p ImageProgress) {
	if tell, ok := ctx.Value(imageProgressKey{}).(func(ImageProgress)); ok {
		tell(p)
	}
}

// appliedEvent is what an action that was applied says of its pod. removing: nobody wants the pod any more.
func appliedEvent(a Action, removing bool) (occurrence, bool) {
	switch a.Kind {
	case CreateContainer:
		return normal(EventCreated, "Container created"), true
	case StartContainer:
		return normal(EventStarted, "Container started"), true
	case MarkStopping, StopContainer:
		return stopEvent(a), true
	case KillContainer:
		return normal(EventKilling, "Killing container %s (%s)", a.Container, a.Reason), true
	case FailPod:
		return warning(a.Failure, "%s", (&PodFailure{Reason: a.Failure, Message: a.Message}).message()), true
	case UpdateResources:
		return normal(EventResizeCompleted, "Pod resize completed"), true
	case ReviveSandbox:
		return sandboxChanged(), true
	case RemoveSandbox:
		return sandboxChanged(), !removing
	}
	return occurrence{}, false
}

func sandboxChanged() occurrence {
	return normal(EventSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
}

// stopEvent says why a container is stopped.
func stopEvent(a Action) occurrence {
	text := ""
	switch {
	case a.Cause == StopLivenessProbe:
		text = "Container %s failed liveness probe, will be restarted"
	case a.Cause == StopStartupProbe:
		text = "Container %s failed startup probe, will be restarted"
	case a.Cause == StopPostStart:
		text = "Container %s failed its postStart hook, will be stopped"
	case a.Reason == reasonDefinitionChanged:
		text = "Container %s definition changed, will be restarted"
	default:
		return normal(EventKilling, "Stopping container %s (%s)", a.Container, a.Reason)
	}
	return normal(EventKilling, text, a.Container)
}

// failureEvent is what an action that failed with a waiting reason says of its pod.
func failureEvent(a Action, reason, image string, cause error) occurrence {
	text := cause.Error()
	switch reason {
	case ReasonErrImagePull, ReasonSignatureValidationFailed, ReasonImageNotAllowed:
		return warning(EventFailed, "%s", failedTo("pull", image, text))
	case ReasonImageInspectError:
		return warning(EventInspectFailed, "%s", failedTo("inspect", image, text))
	case ReasonInvalidImageName:
		return warning(EventInspectFailed, "Failed to apply default image tag %q: %s", image, text)
	case ReasonErrImageNeverPull, ReasonFailedMount, ReasonAppArmor, ReasonHostPortConflict:
		return warning(reason, "%s", text)
	case ReasonCreatePodSandboxError:
		return warning(EventFailedCreatePodSandBox, "Failed to create pod sandbox: %s", text)
	}
	switch a.Kind {
	case UpdateResources:
		return warning(EventResizeError, "Pod resize error: %s", text)
	case MarkStopping, StopContainer, KillContainer, FinishContainer, RemoveContainer, RemoveSandbox:
		return warning(EventFailedKillPod, "error killing pod: %s", text)
	case RecordPod, RecordHealth, MarkStarted, FailPod:
		return warning(EventFailedSync, "error recording the state of the pod: %s", text)
	}
	return warning(EventFailed, "Error: %s", text)
}

// failedTo says what could not be done to an image, unless text does so already, perhaps of another image: one that is
// a volume.
func failedTo(verb, image, text string) string {
	if strings.HasPrefix(text, verb+" image ") {
		return "Failed to " + text
	}
	return fmt.Sprintf("Failed to %s image %q: %s", verb, image, text)
}

// probeEvent is what an attempt of a probe that did not succeed says, in kubelet's words.
func probeEvent(kind probe.Kind, o probe.Outcome) occurrence {
	switch o.Result {
	case probe.Errored:
		return warning(EventUnhealthy, "%s probe errored and resulted in unknown state: %s", kind, o.Output)
	case probe.Warning:
		return warning(EventProbeWarning, "%s probe warning: %s", kind, o.Output)
	}
	return warning(EventUnhealthy, "%s probe failed: %s", kind, o.Output)
}

// exitEvent says how a process ended; leaving: it had been told to.
func exitEvent(exit *Termination, leaving bool) occurrence {
	if exit.ExitCode != 0 && !leaving {
		return warning(EventExited, "Container exited with code %d (%s)", exit.ExitCode, exit.Reason)
	}
	return normal(EventExited, "Container exited with code %d (%s)", exit.ExitCode, exit.Reason)
}
