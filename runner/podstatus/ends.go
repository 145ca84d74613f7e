package podstatus

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
)

// lastEnd returns the termination of the last instance of a container that ended; nil if none did.
func lastEnd(containers []runner.Container, name string) *runner.Termination {
	c := shownInstance(containers, name)
	if c == nil {
		return nil
	}
	if end := c.Ending(); end != nil {
		return end
	}
	return c.Last
}

// endedBy returns, by container, what ended the last instances that did not end by themselves.
func (s *statusBuilder) endedBy() map[string]runner.EndedBy {
	var all map[string]runner.EndedBy
	for spec := range manifests.AllContainers(&s.pod.Spec) {
		end := lastEnd(s.Containers, spec.Name)
		if end == nil || end.By == "" {
			continue
		}
		if all == nil {
			all = map[string]runner.EndedBy{}
		}
		all[spec.Name] = end.By
	}
	return all
}

// stoppedFor returns, by container, the failures for which the agent stopped the last instances.
func (s *statusBuilder) stoppedFor() map[string]runner.StopCause {
	var all map[string]runner.StopCause
	for spec := range manifests.AllContainers(&s.pod.Spec) {
		end := lastEnd(s.Containers, spec.Name)
		if end == nil || end.Stop == "" {
			continue
		}
		if all == nil {
			all = map[string]runner.StopCause{}
		}
		all[spec.Name] = end.Stop
	}
	return all
}

// refused returns, by container, why the processes of the last instances could not be started.
func refused(pod *corev1.PodSpec, containers []runner.Container) map[string]cause.Cause {
	var all map[string]cause.Cause
	for spec := range manifests.AllContainers(pod) {
		end := lastEnd(containers, spec.Name)
		if end == nil || end.Cause.Kind == "" {
			continue
		}
		if all == nil {
			all = map[string]cause.Cause{}
		}
		all[spec.Name] = end.Cause
	}
	return all
}

// failing returns the causes of the steps that are being retried, in a fixed order.
func failing(failures map[string]plan.Failure) []cause.Cause {
	var all []cause.Cause
	for _, key := range slices.Sorted(maps.Keys(failures)) {
		all = append(all, failures[key].Cause)
	}
	return all
}
