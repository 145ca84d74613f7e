package podstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
)

// ReasonContainersNotInitialized is the reason of a pod that is not Initialized.
const ReasonContainersNotInitialized = "ContainersNotInitialized"

// initContainer returns the status of an init container. Instances of an earlier sandbox only count as its last state.
func (s containersBuilder) initContainer(spec *corev1.Container) corev1.ContainerStatus {
	c := s.initInstance(spec.Name)
	st := s.container(spec, c)
	if !manifests.IsSidecar(spec) {
		st.Ready = c != nil && retry.Succeeded(c)
	}
	if past := shownInstance(s.Containers, spec.Name); past != nil && (c == nil || past.ID != c.ID) && st.LastTerminationState.Terminated == nil {
		st.LastTerminationState.Terminated = terminated(past.Exit)
	}
	return st
}

// initInstance returns the instance of an init container in this sandbox; nil if there is none.
func (s containersBuilder) initInstance(name string) *runner.Container {
	var here []runner.Container
	for _, c := range s.Containers {
		if s.here(&c) {
			here = append(here, c)
		}
	}
	return shownInstance(here, name)
}

// here reports whether an instance belongs to this sandbox and this round.
func (s containersBuilder) here(c *runner.Container) bool {
	return s.Sandbox != nil && c.SandboxID == s.Sandbox.ID && c.Round == s.round
}

// serving reports whether a regular container runs, which implies that the init containers have completed.
func (s containersBuilder) serving() bool {
	return slices.ContainsFunc(s.Containers, func(c runner.Container) bool {
		return c.State == runner.ContainerRunning && retry.RoleIn(&s.pod.Spec, c.Name) == retry.Regular
	})
}

// uninitialized lists the init containers that the regular containers wait for.
func (s containersBuilder) uninitialized() []string {
	var names []string
	for i := range s.pod.Spec.InitContainers {
		spec := &s.pod.Spec.InitContainers[i]
		done := plan.InitPassed(&s.pod.Spec, &s.PodState, s.round, spec.Name)
		if manifests.IsSidecar(spec) {
			c := s.initInstance(spec.Name)
			done = c != nil && s.Started(spec, c) || s.serving() || s.begun()
		}
		if !done {
			names = append(names, spec.Name)
		}
	}
	return names
}

// begun reports whether a regular container has been started in this sandbox.
func (s containersBuilder) begun() bool {
	return slices.ContainsFunc(s.Containers, func(c runner.Container) bool {
		return s.here(&c) && !c.StartedAt.IsZero() && retry.RoleIn(&s.pod.Spec, c.Name) == retry.Regular
	})
}

// initFailed reports whether an init container has failed and is not restarted.
func (s containersBuilder) initFailed() bool {
	return slices.ContainsFunc(s.pod.Spec.InitContainers, func(spec corev1.Container) bool {
		return s.failedInit(&spec) != nil
	})
}

// failedInit returns the instance of an init container that failed permanently; nil if it did not.
func (s containersBuilder) failedInit(spec *corev1.Container) *runner.Container {
	c := s.initInstance(spec.Name)
	if c == nil || manifests.IsSidecar(spec) || c.State != runner.ContainerExited || retry.Succeeded(c) || s.Removing ||
		plan.InitPassed(&s.pod.Spec, &s.PodState, s.round, spec.Name) || s.restart(c).Wanted {
		return nil
	}
	return c
}

// lasting returns the statuses of the containers that determine readiness: sidecars and regular ones.
func (s containersBuilder) lasting() []*corev1.ContainerStatus {
	var all []*corev1.ContainerStatus
	for i := range s.pod.Spec.InitContainers {
		if manifests.IsSidecar(&s.pod.Spec.InitContainers[i]) {
			all = append(all, &s.pod.Status.InitContainerStatuses[i])
		}
	}
	for i := range s.pod.Status.ContainerStatuses {
		all = append(all, &s.pod.Status.ContainerStatuses[i])
	}
	return all
}

// initializedCondition returns the Initialized condition; it is true since the last init container completed.
func (s containersBuilder) initializedCondition(created time.Time) corev1.PodCondition {
	since := created
	for i := range s.pod.Spec.InitContainers {
		c := s.initInstance(s.pod.Spec.InitContainers[i].Name)
		if c != nil && retry.Succeeded(c) {
			since = plan.Later(since, c.Exit.FinishedAt)
		}
	}
	c := condition(corev1.PodInitialized, len(s.waitsFor) == 0, since)
	if len(s.waitsFor) > 0 {
		c.Reason = ReasonContainersNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(s.waitsFor, " "))
	}
	return c
}
