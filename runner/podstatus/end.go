package podstatus

import (
	corev1 "k8s.io/api/core/v1"
)

// WithEnds returns the status of a pod that is being removed, with the results of its containers: their records are deleted before the pod.
// before is the previous status, nil at first.
func WithEnds(before, now *corev1.Pod) *corev1.Pod {
	if before == nil {
		return now
	}
	shown := *now
	if before.UID != now.UID { // the pod has been removed completely; the name may belong to a new pod
		shown = *before
		shown.DeletionTimestamp, shown.DeletionGracePeriodSeconds = now.DeletionTimestamp, now.DeletionGracePeriodSeconds
	}
	lost := false
	shown.Status.InitContainerStatuses = ends(before.Status.InitContainerStatuses, shown.Status.InitContainerStatuses, &lost)
	shown.Status.ContainerStatuses = ends(before.Status.ContainerStatuses, shown.Status.ContainerStatuses, &lost)
	debugLost := false // it does not affect the phase
	shown.Status.EphemeralContainerStatuses = ends(before.Status.EphemeralContainerStatuses, shown.Status.EphemeralContainerStatuses, &debugLost)
	if lost {
		shown.Status.Phase, shown.Status.Conditions = before.Status.Phase, before.Status.Conditions
	}
	return &shown
}

// ends restores the results of ended containers whose records are gone.
func ends(before, now []corev1.ContainerStatus, lost *bool) []corev1.ContainerStatus {
	known := map[string]corev1.ContainerStatus{}
	for i := range before {
		if before[i].State.Terminated != nil {
			known[before[i].Name] = before[i]
		}
	}
	out := make([]corev1.ContainerStatus, 0, len(now))
	for i := range now {
		was, ended := known[now[i].Name]
		if !ended || now[i].ContainerID != "" {
			out = append(out, now[i])
			continue
		}
		out = append(out, was)
		*lost = true
	}
	return out
}
