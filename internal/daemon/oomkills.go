package daemon

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/offline"
	"monopod/node/oom"
	"monopod/runner/podstatus"
)

// Reasons of events about processes that the kernel has killed.
const (
	eventSystemOOM  = "SystemOOM"
	eventOOMKilling = "OOMKilling"
)

// killedIn is what is said of the pod that a victim was in.
func killedIn(k oom.Kill, all []podstatus.Status) (ref corev1.ObjectReference, message string, ok bool) {
	for i := range all {
		pod := all[i].Pod
		if pod == nil || !k.In(string(pod.UID)) {
			continue
		}
		why := "Memory cgroup out of memory"
		if k.System {
			why = "Out of memory"
		}
		return corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, FieldPath: containerPath(pod, k.Container()),
		}, fmt.Sprintf("%s: Killed process %d (%s)", why, k.PID, k.Process), true
	}
	return corev1.ObjectReference{}, "", false
}

// containerPath says where in a pod the container with this id is, also if it has ended; empty: it is not known.
func containerPath(pod *corev1.Pod, id string) string {
	if id == "" {
		return ""
	}
	for kind, list := range map[string][]corev1.ContainerStatus{"initContainers": pod.Status.InitContainerStatuses, "containers": pod.Status.ContainerStatuses} {
		for i := range list {
			st := &list[i]
			if last := st.LastTerminationState.Terminated; offline.BareContainerID(st.ContainerID) == id || last != nil && offline.BareContainerID(last.ContainerID) == id {
				return "spec." + kind + "{" + st.Name + "}"
			}
		}
	}
	return ""
}
