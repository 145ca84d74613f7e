package nodeevents

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/offline"
	"monopod/internal/pause"
	"monopod/node/oom"
	"monopod/runner/podstatus"
)

// Reasons of events about processes killed by the kernel, as of a kubelet.
const (
	reasonSystemOOM  = "SystemOOM"
	reasonOOMKilling = "OOMKilling"
)

const (
	// statusTimeout is how long a kill waits for the status of its container: the kernel is often faster.
	statusTimeout = 10 * time.Second
	// maxWaiting is how many kills may wait.
	maxWaiting = 64
)

// Pods are the known pods.
type Pods interface {
	// Statuses returns the status of all pods. An error is the reason why there may be more.
	Statuses() ([]podstatus.Status, error)
	// Subscribe returns a channel that receives a value after each change, and a function that ends the subscription.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// WatchOOM records processes killed by the kernel until ctx ends: as events of their pods, and of the node if the machine itself was out of
// memory. Without the kernel log, as in many containers, only containers report that they ran out of memory, without the name of the process.
func (r *Recorder) WatchOOM(ctx context.Context, kernelLog string, pods Pods) {
	kills := make(chan oom.Kill)
	var g errgroup.Group
	g.Go(func() error {
		defer close(kills)
		return oom.Watch(ctx, kernelLog, func(k oom.Kill) { kills <- k })
	})
	r.recordKills(kills, pods)
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		r.log.Warn("cannot monitor which processes the kernel kills when memory runs out", "err", err)
	}
}

// waitingKill is a kill whose container is in no status yet.
type waitingKill struct {
	oom.Kill
	until time.Time
}

// recordKills records kills until the channel is closed. A kill whose container has no status yet waits for it.
func (r *Recorder) recordKills(kills <-chan oom.Kill, pods Pods) {
	var waiting []waitingKill
	var changed <-chan struct{}
	unsubscribe := func() {}
	expired := time.NewTimer(pause.FarAway)
	defer expired.Stop()
	for open := true; open || len(waiting) > 0; {
		select {
		case k, more := <-kills:
			if open = more; !more {
				kills = nil
				for i := range waiting { // there is no later
					waiting[i].until = time.Time{}
				}
				break
			}
			if k.Group { // the first process of the group has been recorded
				continue
			}
			if k.System {
				r.Node(corev1.EventTypeWarning, reasonSystemOOM, fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID))
			}
			waiting = append(waiting, waitingKill{k, time.Now().Add(statusTimeout)})
			if changed == nil { // before the statuses are read
				changed, unsubscribe = pods.Subscribe()
			}
		case <-changed:
		case <-expired.C:
		}
		if len(waiting) == 0 {
			continue
		}
		known, _ := pods.Statuses() // those that are missing may still appear
		if waiting = r.settle(waiting, known, time.Now()); len(waiting) > 0 {
			expired.Reset(time.Until(waiting[0].until))
			continue
		}
		unsubscribe()
		changed, unsubscribe = nil, func() {}
	}
}

// settle records the kills whose containers are known or that have waited for too long, and returns the others.
func (r *Recorder) settle(waiting []waitingKill, known []podstatus.Status, now time.Time) []waitingKill {
	var later []waitingKill
	for i, k := range waiting {
		ref, message, ok := killedIn(k.Kill, known)
		if k.Container() != "" && ref.FieldPath == "" && now.Before(k.until) && len(waiting)-i <= maxWaiting {
			later = append(later, k)
			continue
		}
		if ok {
			r.Event(ref, corev1.EventTypeWarning, reasonOOMKilling, message)
		}
	}
	return later
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
