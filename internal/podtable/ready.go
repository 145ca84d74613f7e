package podtable

import (
	corev1 "k8s.io/api/core/v1"
)

// IsReady reports whether the condition Ready of a pod is True.
func IsReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
