package manifests

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// IsReady reports whether the condition Ready of a pod is True.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// GateConditions returns the conditions for the readiness gates of a pod, in the order of the gates. Gates whose condition is missing are
// omitted.
func GateConditions(pod *corev1.Pod) (given []corev1.PodCondition) {
	for _, g := range pod.Spec.ReadinessGates {
		at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == g.ConditionType })
		if at >= 0 {
			given = append(given, pod.Status.Conditions[at])
		}
	}
	return given
}
