package nodeevents

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/offline"
	"monopod/node/oom"
	"monopod/runner/podstatus"
)

// Reasons of events about processes killed by the kernel, as of a kubelet.
const (
	reasonSystemOOM  = "SystemOOM"
	reasonOOMKilling = "OOMKilling"
)

// OOM records a process killed by the kernel: as an event of its pod, and of the node if the machine itself was out of memory.
func (r *Recorder) OOM(k oom.Kill, pods []podstatus.Status) {
	if k.Group { // the first process of the group has been recorded
		return
	}
	if k.System {
		r.Node(corev1.EventTypeWarning, reasonSystemOOM, fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID))
	}
	if ref, message, ok := killedIn(k, pods); ok {
		r.Event(ref, corev1.EventTypeWarning, reasonOOMKilling, message)
	}
}

// WatchOOM records kills until ctx ends. pods returns the known pods. Without the kernel log, as in many containers, only containers
// report that they ran out of memory, without the name of the process.
func (r *Recorder) WatchOOM(ctx context.Context, kernelLog string, pods func() ([]podstatus.Status, error)) {
	record := func(k oom.Kill) {
		known, _ := pods() // before they are known, the kill is that of no pod
		r.OOM(k, known)
	}
	if err := oom.Watch(ctx, kernelLog, record); err != nil && ctx.Err() == nil {
		r.log.Warn("cannot monitor which processes the kernel kills when memory runs out", "err", err)
	}
}

// killedIn returns the pod of a killed process, and the message of its event.
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

// containerPath returns the field path of the container with an id, current or previous; empty: unknown.
func containerPath(pod *corev1.Pod, id string) string {
	if id == "" {
		return ""
	}
	for kind, list := range map[string][]corev1.ContainerStatus{
		"initContainers": pod.Status.InitContainerStatuses, "containers": pod.Status.ContainerStatuses, "ephemeralContainers": pod.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			st := &list[i]
			if last := st.LastTerminationState.Terminated; offline.BareContainerID(st.ContainerID) == id || last != nil && offline.BareContainerID(last.ContainerID) == id {
				return "spec." + kind + "{" + st.Name + "}"
			}
		}
	}
	return ""
}
