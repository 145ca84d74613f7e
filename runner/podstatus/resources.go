package podstatus

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/fit"
)

// Below these amounts of cpu, a kubelet does not show what a cgroup has: it is what the kernel makes of less, or of nothing.
const (
	leastCPURequest = 2
	leastCPULimit   = 10
)

// resourcesBuilder builds what the status says about resources.
type resourcesBuilder struct{ *statusBuilder }

func resourcesOf(s *statusBuilder) resourcesBuilder { return resourcesBuilder{s} }

// granted returns the pod whose resources were allocated: the recorded manifest while the desired one may not be applied.
func (s resourcesBuilder) granted() *corev1.Pod {
	if s.Kept && s.Sandbox != nil && s.Sandbox.Pod != nil {
		return s.Sandbox.Pod.Object
	}
	return s.pod
}

// resources sets what is allocated to the pod as a whole, and what it has. Both share memory with the manifest.
func (s resourcesBuilder) resources() {
	if s.Sandbox == nil && (s.Held != nil || s.Desired == nil) {
		return // nothing is allocated
	}
	spec := &s.granted().Spec
	requests, limits := manifests.PodRequests(spec), manifests.PodLimits(spec)
	manifests.AddOverhead(s.pod.Spec.Overhead, requests, limits)
	if len(requests) > 0 {
		s.pod.Status.AllocatedResources = requests
	}
	has := &corev1.ResourceRequirements{Requests: requests, Limits: limits}
	if s.pod.Status.Phase == corev1.PodRunning && s.Sandbox != nil {
		has = inEffect(spec.Resources, s.Sandbox.Resources, requests)
	}
	if len(has.Requests) == 0 {
		has.Requests = nil
	}
	if len(has.Limits) == 0 {
		has.Limits = nil
	}
	s.pod.Status.Resources = has
}

// inEffect returns the resources of a running pod: those of its definition, with the cpu and the memory limit that its cgroup has. Memory
// requests are not in a cgroup; allocated has that of a pod that defines none.
func inEffect(defined, actual *corev1.ResourceRequirements, allocated corev1.ResourceList) *corev1.ResourceRequirements {
	has := &corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	if defined != nil {
		maps.Copy(has.Requests, defined.Requests)
		maps.Copy(has.Limits, defined.Limits)
	}
	memory, requested := allocated[corev1.ResourceMemory]
	if _, own := has.Requests[corev1.ResourceMemory]; requested && !own {
		has.Requests[corev1.ResourceMemory] = memory
	}
	if actual == nil {
		return has
	}
	setCPU(has.Requests, actual.Requests, leastCPURequest)
	setCPU(has.Limits, actual.Limits, leastCPULimit)
	if memory, limited := actual.Limits[corev1.ResourceMemory]; limited {
		has.Limits[corev1.ResourceMemory] = memory
	}
	return has
}

// setCPU sets the actual amount of cpu, unless both amounts are so small that they mean the same.
func setCPU(has, actual corev1.ResourceList, least int64) {
	if cpu, ok := actual[corev1.ResourceCPU]; ok && (cpu.MilliValue() > least || has.Cpu().MilliValue() > least) {
		has[corev1.ResourceCPU] = cpu
	}
}

// shownResources returns the allocated and the actual resources of a container. They differ while it is being resized; one that does not
// run has none but the allocated ones. Both share memory with the arguments.
func shownResources(spec *corev1.Container, c *runner.Container) (allocated corev1.ResourceList, has *corev1.ResourceRequirements) {
	has = &corev1.ResourceRequirements{Limits: spec.Resources.Limits, Requests: spec.Resources.Requests}
	if c.State == runner.ContainerRunning && c.Resources != nil {
		has.Limits = withActual(spec.Resources.Limits, c.Resources.Limits)
		has.Requests = withActual(spec.Resources.Requests, c.Resources.Requests)
	}
	return spec.Resources.Requests, has
}

// withActual returns a list of the definition with the cpu and memory in effect.
func withActual(defined, actual corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for name, q := range defined {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			continue
		}
		if out == nil {
			out = make(corev1.ResourceList, len(defined))
			maps.Copy(out, actual)
		}
		out[name] = q
	}
	switch {
	case out != nil:
		return out
	case len(actual) == 0:
		return nil
	}
	return actual
}

// refusedResizes lists why resources cannot be changed, sorted.
func (s resourcesBuilder) refusedResizes() []string {
	var refused []string
	for key, f := range s.Failures {
		if name, ok := strings.CutPrefix(key, plan.ResizeKey("")); ok {
			text := f.Message
			if name != "" {
				text = "container " + name + ": " + text
			}
			refused = append(refused, text)
		}
	}
	slices.Sort(refused)
	return refused
}

// resizing returns the condition of a pod whose desired resources are not allocated, or that does not have them yet.
func (s resourcesBuilder) resizing() []corev1.PodCondition {
	if s.Sandbox == nil {
		return nil
	}
	if s.defersResize() {
		c := condition(corev1.PodResizePending, true, s.Sandbox.CreatedAt)
		c.Reason, c.Message = corev1.PodReasonDeferred, s.Held.Message
		if s.Held.Cause.Fault == cause.TooLarge {
			c.Reason = corev1.PodReasonInfeasible
		}
		return []corev1.PodCondition{c}
	}
	refused := s.refusedResizes()
	if len(refused) == 0 && !s.resizes() {
		return nil
	}
	c := condition(corev1.PodResizeInProgress, true, s.Sandbox.CreatedAt)
	if len(refused) > 0 {
		c.Reason, c.Message = runner.ReasonResizeError, strings.Join(refused, "; ")
	}
	return []corev1.PodCondition{c}
}

// defersResize reports whether other resources than those allocated are desired, and may not be allocated now.
func (s resourcesBuilder) defersResize() bool {
	return s.Held != nil && s.Kept && s.Desired != nil && s.Sandbox.Pod != nil && fit.Sandbox(s.Hashes, s.Desired, s.Sandbox) &&
		s.Hashes.PodResources(s.Desired) != s.Hashes.PodResources(s.Sandbox.Pod)
}

// resizes reports whether resources are being changed in place. Containers that are recreated start with the desired ones.
func (s resourcesBuilder) resizes() bool {
	if s.Desired == nil || s.Kept || s.Removing || s.Halt != nil || s.failure() != nil || !fit.Sandbox(s.Hashes, s.Desired, s.Sandbox) {
		return false
	}
	waits, here := false, false
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.State != runner.ContainerRunning || c.SandboxID != s.Sandbox.ID || c.Leaving() {
			continue
		}
		here = true
		waits = waits || fit.Made(s.Hashes, s.Desired, c) && !fit.Sized(s.Hashes, s.Desired, c)
	}
	return waits || here && s.Sandbox.ResourcesHash != "" && s.Sandbox.ResourcesHash != s.Hashes.PodResources(s.Desired)
}
