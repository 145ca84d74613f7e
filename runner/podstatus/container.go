package podstatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
)

const containerIDPrefix = "containerd://"

// shownInstance returns the instance that the status describes: the running one, else the latest that ran, else the one about to start; nil
// if there is none.
func shownInstance(all []runner.Container, name string) *runner.Container {
	var shown *runner.Container
	for i := range all {
		c := &all[i]
		if c.Name == name && (shown == nil || lifeOrder(c.State) >= lifeOrder(shown.State)) {
			shown = c
		}
	}
	return shown
}

// lifeOrder orders states by their relevance for the status.
func lifeOrder(s runner.ContainerState) int {
	switch s {
	case runner.ContainerRunning:
		return 2
	case runner.ContainerExited:
		return 1
	}
	return 0
}

// containersBuilder builds the status of containers and of initialization.
type containersBuilder struct{ *statusBuilder }

func containersOf(s *statusBuilder) containersBuilder { return containersBuilder{s} }

// container returns the status of one container.
func (s containersBuilder) container(spec *corev1.Container, c *runner.Container) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: new(false)}
	if spec.Lifecycle != nil {
		st.StopSignal = spec.Lifecycle.StopSignal
	}
	if c != nil {
		st.Image, st.ImageID = c.Image, c.ImageID
		st.ContainerID = containerIDPrefix + c.ID
		st.RestartCount = int32(c.RestartCount)
		st.LastTerminationState = corev1.ContainerState{Terminated: terminated(c.Last)}
		of := spec
		if was := manifests.FindContainer(&resourcesOf(s.statusBuilder).granted().Spec, spec.Name); was != nil {
			of = was
		}
		st.AllocatedResources, st.Resources = shownResources(of, c)
	}
	switch {
	case c == nil || c.State == runner.ContainerCreated:
		st.State.Waiting = s.waiting(spec)
	case c.State == runner.ContainerRunning:
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}
		st.Ready = s.Blind == nil && s.Ready(spec, c)
		*st.Started = s.Started(spec, c)
	default:
		s.ended(&st, spec, c)
	}
	return st
}

// ended fills in the status of an instance that has exited: its exit, or what its successor waits for.
func (s containersBuilder) ended(st *corev1.ContainerStatus, spec *corev1.Container, c *runner.Container) {
	exit := terminated(c.Exit)
	if exit == nil {
		exit = &corev1.ContainerStateTerminated{ExitCode: 255, Reason: runner.ReasonUnknown, ContainerID: containerIDPrefix + c.ID}
	}
	wait := s.waiting(spec)
	r := s.restart(c)
	switch {
	case s.Removing || s.Halt != nil || s.failure() != nil || !r.Wanted:
		st.State.Terminated = exit
		return
	case wait.Reason != s.waitingReason(): // a failure, or an image pull
	case r.At.After(s.Now):
		wait = &corev1.ContainerStateWaiting{Reason: runner.ReasonCrashLoopBackOff, Message: s.backOffMessage(spec.Name, c)}
	default:
		st.State.Terminated = exit
		return
	}
	st.State.Waiting = wait
	st.LastTerminationState = corev1.ContainerState{Terminated: exit}
}

// backOffMessage returns the kubelet's text.
func (s containersBuilder) backOffMessage(name string, c *runner.Container) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		min(c.BackOff, s.Options.BackOffLimit()), name, s.pod.Name, s.pod.Namespace, s.pod.UID)
}

// waiting returns the waiting state of a container that does not run.
func (s containersBuilder) waiting(spec *corev1.Container) *corev1.ContainerStateWaiting {
	w := &corev1.ContainerStateWaiting{Reason: s.waitingReason()}
	f, failed := s.Failures[spec.Name]
	if !failed {
		f, failed = s.Failures[""]
	}
	switch {
	case s.Held != nil:
		w.Message = s.Held.Message
	case s.Prepared[spec.Name] == plan.PreparationRunning && failed:
		w.Reason, w.Message = f.Reason, f.Message
	case s.Prepared[spec.Name] == plan.PreparationRunning:
		w.Message = "pulling image " + spec.Image
	case failed && f.Reason == runner.ReasonErrImagePull:
		w.Reason = runner.ReasonImagePullBackOff
		w.Message = fmt.Sprintf("Back-off pulling image %q: %s: %s", spec.Image, f.Reason, f.Message)
	case failed:
		w.Reason, w.Message = f.Reason, f.Message
	}
	return w
}

// waitingReason returns the default reason of a waiting container.
func (s containersBuilder) waitingReason() string {
	if len(s.pod.Spec.InitContainers) > 0 {
		return runner.ReasonPodInitializing
	}
	return runner.ReasonContainerCreating
}

func terminated(t *runner.Termination) *corev1.ContainerStateTerminated {
	if t == nil {
		return nil
	}
	return &corev1.ContainerStateTerminated{
		ExitCode:    int32(t.ExitCode),
		Reason:      t.Reason,
		Message:     t.Message,
		StartedAt:   metav1.NewTime(t.StartedAt),
		FinishedAt:  metav1.NewTime(t.FinishedAt),
		ContainerID: containerIDPrefix + t.ContainerID,
	}
}
