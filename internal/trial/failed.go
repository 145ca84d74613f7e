package trial

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// failedReason is why a pod is in phase Failed.
func failedReason(pod *corev1.Pod, why string) string {
	if pod.Status.Reason != "" {
		return strings.TrimSuffix(pod.Status.Reason+": "+pod.Status.Message, ": ")
	}
	if c := culprit(pod); c != nil {
		return ended(c.Name, c.State.Terminated)
	}
	return cmp.Or(why, "it has failed")
}

// culprit returns the container whose failure made the pod fail, nil if none has failed. A sidecar is the last choice: it never decides the
// phase of a pod, and is killed after the containers that do.
func culprit(pod *corev1.Pod) *corev1.ContainerStatus {
	var own, sidecars []corev1.ContainerStatus
	for _, c := range statuses(pod) {
		switch end := c.State.Terminated; {
		case end == nil || end.ExitCode == 0:
		case slices.ContainsFunc(pod.Spec.InitContainers, func(s corev1.Container) bool { return s.Name == c.Name && manifests.IsSidecar(&s) }):
			sidecars = append(sidecars, c)
		default:
			own = append(own, c)
		}
	}
	slices.SortStableFunc(own, func(a, b corev1.ContainerStatus) int {
		return a.State.Terminated.FinishedAt.Compare(b.State.Terminated.FinishedAt.Time)
	})
	if all := append(own, sidecars...); len(all) > 0 {
		return &all[0]
	}
	return nil
}

func ended(container string, end *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s ended with exit code %d", container, end.ExitCode)
	if end.Reason != "" && end.Reason != "Error" {
		text += " (" + end.Reason + ")"
	}
	if end.Message != "" {
		text += ": " + end.Message
	}
	return text
}
