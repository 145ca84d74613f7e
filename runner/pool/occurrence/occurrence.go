// Package occurrence words the events of pods as the kubelet does: for actions, their failures, exits and probes.
//
// It is pure. It must not decide which events are recorded, nor record them.
package occurrence

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

// Reasons of events, spelled as in the kubelet. Those of Held, of Sandbox.Failed and of some failures are reasons of events as well.
const (
	ReasonPulling                = "Pulling"
	ReasonPulled                 = "Pulled"
	ReasonCreated                = "Created"
	ReasonStarted                = "Started"
	ReasonKilling                = "Killing"
	ReasonBackOff                = "BackOff"
	ReasonFailed                 = "Failed"
	ReasonInspectFailed          = "InspectFailed"
	ReasonUnhealthy              = "Unhealthy"
	ReasonProbeWarning           = "ProbeWarning"
	ReasonFailedPostStartHook    = "FailedPostStartHook"
	ReasonFailedPreStopHook      = "FailedPreStopHook"
	ReasonFailedCreatePodSandBox = "FailedCreatePodSandBox"
	ReasonSandboxChanged         = "SandboxChanged"
	ReasonFailedKillPod          = "FailedKillPod"
	ReasonFailedSync             = "FailedSync"
	ReasonResizeCompleted        = "ResizeCompleted"
	ReasonResizeError            = "ResizeError"
	// ReasonExited is specific to monopod: a process has ended. The kubelet shows that only in the status, where the next exit overwrites it.
	ReasonExited = "Exited"
)

// Event is an event without its object: its type, reason and message.
type Event struct {
	Kind, Reason, Message string
}

// Normal returns an event of that type.
func Normal(reason, format string, args ...any) Event {
	return Event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

// Warning returns an event of that type.
func Warning(reason, format string, args ...any) Event {
	return Event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// Progress returns the kubelet's event for the progress of an image.
func Progress(p runner.ImageProgress) Event {
	switch {
	case p.Pulling:
		return Normal(ReasonPulling, "Pulling image %q", p.Image)
	case p.Present:
		return Normal(ReasonPulled, "Container image %q already present on machine and can be accessed by the pod", p.Image)
	}
	took := p.Took.Round(time.Millisecond)
	return Normal(ReasonPulled, "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", p.Image, took, took, p.Size)
}

// Applied returns the event of an applied action. removing reports that the pod is not desired.
func Applied(a runner.Action, removing bool) (Event, bool) {
	switch a.Kind {
	case runner.CreateContainer:
		return Normal(ReasonCreated, "Container created"), true
	case runner.StartContainer:
		return Normal(ReasonStarted, "Container started"), true
	case runner.MarkStopping, runner.StopContainer:
		return stopEvent(a), true
	case runner.KillContainer:
		return Normal(ReasonKilling, "Killing container %s (%s)", a.Container, a.Reason), true
	case runner.FailPod:
		return Warning(a.Failure, "%s", podstatus.FailureMessage(&runner.PodFailure{Reason: a.Failure, Message: a.Message})), true
	case runner.UpdateResources:
		return Normal(ReasonResizeCompleted, "Pod resize completed"), true
	case runner.ReviveSandbox:
		return sandboxChanged(), true
	case runner.RemoveSandbox:
		return sandboxChanged(), !removing
	}
	return Event{}, false
}

func sandboxChanged() Event {
	return Normal(ReasonSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
}

// stopEvent returns the event of an action that stops a container.
func stopEvent(a runner.Action) Event {
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
		return Normal(ReasonKilling, "Stopping container %s (%s)", a.Container, a.Reason)
	}
	return Normal(ReasonKilling, text, a.Container)
}

// Failed returns the event of an action that failed with a waiting reason.
func Failed(a runner.Action, f plan.Failure, image string, err error) Event {
	text := err.Error()
	switch reason := f.Reason; reason {
	case runner.ReasonErrImagePull, runner.ReasonSignatureValidationFailed, runner.ReasonImageNotAllowed:
		return Warning(ReasonFailed, "%s", failedTo("pull", image, text))
	case runner.ReasonImageInspectError:
		return Warning(ReasonInspectFailed, "%s", failedTo("inspect", image, text))
	case runner.ReasonInvalidImageName:
		return Warning(ReasonInspectFailed, "Failed to apply default image tag %q: %s", image, text)
	case runner.ReasonErrImageNeverPull, runner.ReasonFailedMount, runner.ReasonAppArmor, runner.ReasonHostPortConflict:
		return Warning(reason, "%s", text)
	case runner.ReasonCreatePodSandboxError:
		return Warning(ReasonFailedCreatePodSandBox, "Failed to create pod sandbox: %s", text)
	}
	switch a.Kind {
	case runner.UpdateResources:
		return Warning(ReasonResizeError, "Pod resize error: %s", text)
	case runner.MarkStopping, runner.StopContainer, runner.KillContainer, runner.FinishContainer, runner.RemoveContainer, runner.RemoveSandbox:
		return Warning(ReasonFailedKillPod, "error killing pod: %s", text)
	case runner.RecordPod, runner.RecordHealth, runner.MarkStarted, runner.FailPod:
		return Warning(ReasonFailedSync, "error recording the state of the pod: %s", text)
	}
	return Warning(ReasonFailed, "Error: %s", text)
}

// failedTo adds the failed step and its image to text, unless text already contains both. The image may be another one than that of the
// container: one that is mounted as a volume.
func failedTo(verb, image, text string) string {
	return "Failed to " + printer.Lead(fmt.Sprintf("%s image %q: ", verb, image), verb+" image ", text)
}

// Probe returns the kubelet's event for an unsuccessful attempt of a probe.
func Probe(kind probe.Kind, o probe.Outcome) Event {
	switch o.Result {
	case probe.Errored:
		return Warning(ReasonUnhealthy, "%s probe errored and resulted in unknown state: %s", kind, o.Output)
	case probe.Warning:
		return Warning(ReasonProbeWarning, "%s probe warning: %s", kind, o.Output)
	}
	return Warning(ReasonUnhealthy, "%s probe failed: %s", kind, o.Output)
}

// Exit returns the event of an exit. leaving reports that the container was stopped by the agent.
func Exit(exit *runner.Termination, leaving bool) Event {
	if exit.ExitCode != 0 && !leaving {
		return Warning(ReasonExited, "Container exited with code %d (%s)", exit.ExitCode, exit.Reason)
	}
	return Normal(ReasonExited, "Container exited with code %d (%s)", exit.ExitCode, exit.Reason)
}
