package podstatus

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/runner"
)

// halted reports whether the pod is stopped before it has completed.
func (s *statusBuilder) halted() bool {
	return s.Halt != nil && s.Sandbox != nil && !s.Removing && s.failure() == nil && !containersOf(s).initFailed() && s.unfinished()
}

// unfinished reports whether a container of the pod runs or would be started.
func (s *statusBuilder) unfinished() bool {
	return slices.ContainsFunc(s.pod.Spec.Containers, func(spec corev1.Container) bool {
		c := shownInstance(s.Containers, spec.Name)
		return c == nil || c.State != runner.ContainerExited || s.restart(c).Wanted
	})
}

// haltedPhase returns the phase of a halted pod without running containers.
func (s *statusBuilder) haltedPhase() corev1.PodPhase {
	if s.Halt.Failed {
		return corev1.PodFailed
	}
	return corev1.PodPending
}

// rejected reports whether this machine rejects the pod, which has no sandbox.
func (s *statusBuilder) rejected() bool { return s.Held != nil && s.Held.Failed && s.Sandbox == nil }

// stopping reports whether a container of the pod still runs.
func (s *statusBuilder) stopping() bool {
	return slices.ContainsFunc(s.all, func(c runner.Container) bool { return c.State == runner.ContainerRunning })
}

func (s *statusBuilder) troubleHalted() model.Trouble {
	h := s.Halt
	t := model.Trouble{Kind: model.TroubleHalted, Reason: h.Reason, Message: h.Message, Cause: h.Cause, Text: h.Reason + ": " + h.Message}
	if h.Final() { // no change of the machine lets it run
		t.Kind = model.TroubleHeld
	} else if s.stopping() {
		t.Text = fmt.Sprintf("being stopped: %s: %s", h.Reason, h.Message)
	}
	return t
}
