package mirror

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

// Reason and message of a kubelet for a container of a deleted pod whose exit was not observed.
const (
	ReasonStatusUnknown  = "ContainerStatusUnknown"
	messageStatusUnknown = "The container could not be located when the pod was terminated"
	ExitStatusUnknown    = 137
)

// Reasons of pods that are not ready because they have ended.
const (
	ReasonPodFailed    = "PodFailed"
	ReasonPodCompleted = "PodCompleted"
)

// finalStatus returns the status of a deleted pod that no longer exists here, made from its last known one. As with a kubelet its phase is
// terminal, and a container without a known exit counts as failed: controllers wait for that before they replace the pod.
func finalStatus(pod *corev1.Pod, last *corev1.PodStatus) corev1.PodStatus {
	s := *last.DeepCopy()
	terminate(s.InitContainerStatuses, started)
	if initialized(pod, &s) {
		terminate(s.ContainerStatuses, func(*corev1.ContainerStatus) bool { return true })
	}
	if !Finished(&s) {
		s.Phase = corev1.PodFailed
	}
	reason := ReasonPodFailed
	if s.Phase == corev1.PodSucceeded {
		reason = ReasonPodCompleted
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			continue
		}
		if c.Status != corev1.ConditionFalse {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(endedAt(pod, &s))
		}
		c.Reason, c.Message = reason, ""
	}
	return s
}

// terminate has those containers end that have not.
func terminate(all []corev1.ContainerStatus, which func(*corev1.ContainerStatus) bool) {
	for i := range all {
		c := &all[i]
		if c.State.Terminated == nil && which(c) {
			c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: ReasonStatusUnknown, Message: messageStatusUnknown, ExitCode: ExitStatusUnknown, ContainerID: c.ContainerID,
			}}
		}
		if c.State.Terminated != nil {
			c.Ready, c.Started = false, new(false)
		}
	}
}

// started reports whether a container has run.
func started(c *corev1.ContainerStatus) bool {
	return c.State.Running != nil || c.LastTerminationState.Terminated != nil
}

// initialized reports whether the regular containers may have run.
func initialized(pod *corev1.Pod, s *corev1.PodStatus) bool {
	return len(pod.Spec.InitContainers) == 0 || slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
	})
}

// endedAt is when the last container ended, or the pod was to be gone.
func endedAt(pod *corev1.Pod, s *corev1.PodStatus) time.Time {
	var at time.Time
	for _, all := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range all {
			if t := all[i].State.Terminated; t != nil && t.FinishedAt.After(at) {
				at = t.FinishedAt.Time
			}
		}
	}
	if at.IsZero() && pod.DeletionTimestamp != nil {
		at = pod.DeletionTimestamp.Time
	}
	return at
}

// neverBack keeps containers terminated that the server knows as terminated and does not let leave that state: those that are not
// restarted, and those of a deleted pod. A container that has run since is a new instance, which the server accepts.
func neverBack(pod *corev1.Pod, there, s *corev1.PodStatus) {
	lost := keepTerminated(pod, there.ContainerStatuses, s.ContainerStatuses, func(*corev1.ContainerStatus) bool { return false })
	sidecar := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar[c.Name] = manifests.IsSidecar(c)
	}
	keepTerminated(pod, there.InitContainerStatuses, s.InitContainerStatuses, func(c *corev1.ContainerStatus) bool { return sidecar[c.Name] })
	if lost && Finished(there) {
		s.Phase, s.Reason, s.Message = there.Phase, there.Reason, there.Message
	}
}

func keepTerminated(pod *corev1.Pod, there, now []corev1.ContainerStatus, restarts func(*corev1.ContainerStatus) bool) (lost bool) {
	for i := range now {
		c := &now[i]
		at := slices.IndexFunc(there, func(o corev1.ContainerStatus) bool { return o.Name == c.Name })
		if at < 0 || c.State.Terminated != nil || there[at].State.Terminated == nil {
			continue
		}
		if pod.DeletionTimestamp == nil && (restarts(c) || mayRestart(pod, c.Name, there[at].State.Terminated)) {
			continue
		}
		*c = *there[at].DeepCopy()
		c.Ready, c.Started, lost = false, new(false), true
	}
	return lost
}

// mayRestart reports whether an API server accepts that a container that ended like this runs again.
func mayRestart(pod *corev1.Pod, name string, end *corev1.ContainerStateTerminated) bool {
	policy := pod.Spec.RestartPolicy
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			if all[i].Name != name {
				continue
			}
			if len(all[i].RestartPolicyRules) > 0 {
				return true
			}
			if p := all[i].RestartPolicy; p != nil {
				policy = corev1.RestartPolicy(*p)
			}
		}
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && end.ExitCode != 0
}

// Finished reports whether a pod has completed or failed.
func Finished(s *corev1.PodStatus) bool {
	return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
}
