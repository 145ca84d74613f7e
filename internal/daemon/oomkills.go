package daemon

import (
	"context"
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

// watchOOM records the processes that the kernel kills because memory is out, until ctx ends. Without the messages of the kernel, as in
// many containers, containers still say themselves that they ran out of memory, but not with which process.
func (a *App) watchOOM(ctx context.Context, file string) {
	if err := oom.Watch(ctx, file, a.tellOOM); err != nil && ctx.Err() == nil {
		a.Log.Warn("which processes the kernel kills when memory is out is not known", "err", err)
	}
}

// tellOOM records a kill: of a container, with its pod, and when the machine itself was out of memory, with the node in a kubelet's words.
func (a *App) tellOOM(k oom.Kill) {
	if k.Group { // that of the first one has told
		return
	}
	if k.System {
		a.tell(corev1.EventTypeWarning, eventSystemOOM, fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID))
	}
	all, err := a.Board.statuses()
	if err != nil { // it is nobody's yet
		return
	}
	if ref, message, ok := killedIn(k, all); ok {
		a.events.Event(ref, corev1.EventTypeWarning, eventOOMKilling, message)
	}
}

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
