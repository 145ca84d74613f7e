package pool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/printer"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/probe"
)

// noRecorder discards events.
type noRecorder struct{}

// Event implements Recorder.
func (noRecorder) Event(corev1.ObjectReference, string, string, string) {}

// Reasons of events, spelled as in the kubelet. Those of Held, of Sandbox.Failed and of some failures are reasons of events as well.
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
	// EventExited is specific to monopod: a process has ended. The kubelet shows that only in the status, where the next exit overwrites it.
	EventExited = "Exited"
)

// occurrence is an event without its object.
type occurrence struct {
	kind, reason, message string
}

func normal(reason, format string, args ...any) occurrence {
	return occurrence{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) occurrence {
	return occurrence{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// progressEvent returns the kubelet's event for the progress of an image.
func progressEvent(p runner.ImageProgress) occurrence {
	switch {
	case p.Pulling:
		return normal(EventPulling, "Pulling image %q", p.Image)
	case p.Present:
		return normal(EventPulled, "Container image %q already present on machine and can be accessed by the pod", p.Image)
	}
	took := p.Took.Round(time.Millisecond)
	return normal(EventPulled, "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", p.Image, took, took, p.Size)
}

// appliedEvent returns the event of an applied action. removing reports that the pod is not desired.
func appliedEvent(a runner.Action, removing bool) (occurrence, bool) {
	switch a.Kind {
	case runner.CreateContainer:
		return normal(EventCreated, "Container created"), true
	case runner.StartContainer:
		return normal(EventStarted, "Container started"), true
	case runner.MarkStopping, runner.StopContainer:
		return stopEvent(a), true
	case runner.KillContainer:
		return normal(EventKilling, "Killing container %s (%s)", a.Container, a.Reason), true
	case runner.FailPod:
		return warning(a.Failure, "%s", podstatus.FailureMessage(&runner.PodFailure{Reason: a.Failure, Message: a.Message})), true
	case runner.UpdateResources:
		return normal(EventResizeCompleted, "Pod resize completed"), true
	case runner.ReviveSandbox:
		return sandboxChanged(), true
	case runner.RemoveSandbox:
		return sandboxChanged(), !removing
	}
	return occurrence{}, false
}

func sandboxChanged() occurrence {
	return normal(EventSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
}

// stopEvent returns the event of an action that stops a container.
func stopEvent(a runner.Action) occurrence {
	text := ""
	switch {
	case a.Cause == runner.StopLivenessProbe:
		text = "Container %s failed liveness probe, will be restarted"
	case a.Cause == runner.StopStartupProbe:
		text = "Container %s failed startup probe, will be restarted"
	case a.Cause == runner.StopPostStart:
		text = "Container %s failed its postStart hook, will be stopped"
	case a.Reason == runner.ReasonDefinitionChanged:
		text = "Container %s definition changed, will be restarted"
	default:
		return normal(EventKilling, "Stopping container %s (%s)", a.Container, a.Reason)
	}
	return normal(EventKilling, text, a.Container)
}

// failureEvent returns the event of an action that failed with a waiting reason.
func failureEvent(a runner.Action, f plan.Failure, image string, err error) occurrence {
	text := err.Error()
	switch reason := f.Reason; reason {
	case runner.ReasonErrImagePull, runner.ReasonSignatureValidationFailed, runner.ReasonImageNotAllowed:
		return warning(EventFailed, "%s", failedTo("pull", image, text))
	case runner.ReasonImageInspectError:
		return warning(EventInspectFailed, "%s", failedTo("inspect", image, text))
	case runner.ReasonInvalidImageName:
		return warning(EventInspectFailed, "Failed to apply default image tag %q: %s", image, text)
	case runner.ReasonErrImageNeverPull, runner.ReasonFailedMount, runner.ReasonAppArmor, runner.ReasonHostPortConflict:
		return warning(reason, "%s", text)
	case runner.ReasonCreatePodSandboxError:
		return warning(EventFailedCreatePodSandBox, "Failed to create pod sandbox: %s", text)
	}
	switch a.Kind {
	case runner.UpdateResources:
		return warning(EventResizeError, "Pod resize error: %s", text)
	case runner.MarkStopping, runner.StopContainer, runner.KillContainer, runner.FinishContainer, runner.RemoveContainer, runner.RemoveSandbox:
		return warning(EventFailedKillPod, "error killing pod: %s", text)
	case runner.RecordPod, runner.RecordHealth, runner.MarkStarted, runner.FailPod:
		return warning(EventFailedSync, "error recording the state of the pod: %s", text)
	}
	return warning(EventFailed, "Error: %s", text)
}

// failedTo adds the failed step and its image to text, unless text already contains both. The image may be another one than that of the
// container: one that is mounted as a volume.
func failedTo(verb, image, text string) string {
	return "Failed to " + printer.Lead(fmt.Sprintf("%s image %q: ", verb, image), verb+" image ", text)
}

// probeEvent returns the kubelet's event for an unsuccessful attempt of a probe.
func probeEvent(kind probe.Kind, o probe.Outcome) occurrence {
	switch o.Result {
	case probe.Errored:
		return warning(EventUnhealthy, "%s probe errored and resulted in unknown state: %s", kind, o.Output)
	case probe.Warning:
		return warning(EventProbeWarning, "%s probe warning: %s", kind, o.Output)
	}
	return warning(EventUnhealthy, "%s probe failed: %s", kind, o.Output)
}

// exitEvent returns the event of an exit. leaving reports that the container was stopped by the agent.
func exitEvent(exit *runner.Termination, leaving bool) occurrence {
	if exit.ExitCode != 0 && !leaving {
		return warning(EventExited, "Container exited with code %d (%s)", exit.ExitCode, exit.Reason)
	}
	return normal(EventExited, "Container exited with code %d (%s)", exit.ExitCode, exit.Reason)
}
