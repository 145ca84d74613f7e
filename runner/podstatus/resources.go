package podstatus

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/runner"
	"monopod/runner/plan"
)

// shownResources returns the desired and the actual resources of a container. They differ while it is being resized. Both share memory with
// the arguments.
func shownResources(spec *corev1.Container, c *runner.Container) (allocated corev1.ResourceList, has *corev1.ResourceRequirements) {
	if c.Resources == nil {
		return nil, nil
	}
	has = &corev1.ResourceRequirements{
		Limits:   withActual(spec.Resources.Limits, c.Resources.Limits),
		Requests: withActual(spec.Resources.Requests, c.Resources.Requests),
	}
	if has.Limits == nil && has.Requests == nil {
		return nil, nil
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

// resizing returns the condition of a pod whose containers do not have the desired resources yet.
func (s containersBuilder) resizing() []corev1.PodCondition {
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
	if len(refused) == 0 {
		return nil
	}
	slices.Sort(refused)
	var since time.Time
	if s.Sandbox != nil {
		since = s.Sandbox.CreatedAt
	}
	return []corev1.PodCondition{{
		Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, Reason: runner.ReasonResizeError,
		Message: strings.Join(refused, "; "), LastTransitionTime: metav1.NewTime(since),
	}}
}
