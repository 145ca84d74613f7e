package podstatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/runner"
	"monopod/runner/plan"
)

// ephemeral returns the status of an ephemeral container. It is never ready, and never restarted.
func (s containersBuilder) ephemeral(e *corev1.EphemeralContainer) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: e.Name, Image: e.Image}
	c := shownInstance(s.debug, e.Name)
	if c != nil {
		st.Image, st.ImageID, st.ContainerID = c.Image, c.ImageID, containerIDPrefix+c.ID
		st.Resources = &corev1.ResourceRequirements{} // it can have none
	}
	switch {
	case c == nil || c.State == runner.ContainerCreated:
		st.State.Waiting = s.ephemeralWaiting(e, c)
	case c.State == runner.ContainerRunning:
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}
	case c.Exit == nil:
		st.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 255, Reason: runner.ReasonUnknown, ContainerID: containerIDPrefix + c.ID}
	default:
		st.State.Terminated = terminated(c.Exit)
	}
	return st
}

// ephemeralWaiting returns the waiting state of an ephemeral container, which waits neither for init containers nor for an edit.
func (s containersBuilder) ephemeralWaiting(e *corev1.EphemeralContainer, c *runner.Container) *corev1.ContainerStateWaiting {
	w := &corev1.ContainerStateWaiting{Reason: runner.ReasonContainerCreating}
	f, failed := s.ephemeralFailure(e.Name)
	target := shownInstance(s.Containers, e.TargetContainerName)
	switch {
	case s.Prepared[e.Name] == plan.PreparationRunning && !failed:
		w.Message = "pulling image " + e.Image
	case failed && f.Reason == runner.ReasonErrImagePull && s.Prepared[e.Name] != plan.PreparationRunning:
		w.Reason = runner.ReasonImagePullBackOff
		w.Message = fmt.Sprintf("Back-off pulling image %q: %s: %s", e.Image, f.Reason, f.Message)
	case failed:
		w.Reason, w.Message = f.Reason, f.Message
	case c == nil && e.TargetContainerName != "" && (target == nil || target.State != runner.ContainerRunning):
		w.Message = "waiting for target container " + e.TargetContainerName + " to run"
	}
	return w
}

// ephemeralFailure returns the failed step of an ephemeral container, whichever manifest the pod follows.
func (s *statusBuilder) ephemeralFailure(name string) (plan.Failure, bool) {
	for _, m := range []runner.Manifest{runner.DesiredManifest, runner.RecordedManifest} {
		if f, ok := s.Failures[plan.ManifestKey(m, name)]; ok {
			return f, true
		}
	}
	return plan.Failure{}, false
}

// troubleEphemeral returns the failed step of the first ephemeral container that cannot start. The exit of an ephemeral container is not a
// problem of the pod.
func (s troublesBuilder) troubleEphemeral() model.Trouble {
	for i := range s.pod.Spec.EphemeralContainers {
		e := &s.pod.Spec.EphemeralContainers[i]
		if f, ok := s.ephemeralFailure(e.Name); ok && shownInstance(s.debug, e.Name) == nil {
			t := stepTrouble(f, e.Name)
			t.Text = fmt.Sprintf("ephemeral container %s: %s", e.Name, t.Text)
			return t
		}
	}
	return model.Trouble{}
}
