package runner

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
)

// A desired pod can be halted, because the machine is shutting down or drained. Its containers are stopped; its sandbox, address, volumes
// and records stay. When the halt ends, the pod resumes in the same sandbox.

// Halt orders that a desired pod is stopped and stays stopped.
type Halt struct {
	Reason, Message string
	// Cause is the reason why the pod must not run.
	Cause cause.Cause
	// Bounded limits the grace period of containers to Grace, whatever the manifest says.
	Bounded bool
	Grace   time.Duration
	// Remove orders that the pod is removed completely, because another agent is going to run it.
	Remove bool
	// Deleted marks a pod that has been deleted and whose object is kept by finalizers. Containers get exactly Grace, and their results
	// determine the final phase.
	Deleted bool
	// Rejected marks a pod that this machine rejects.
	Rejected bool
	// Failed makes the pod Failed once it has stopped, as the kubelet does on a node shutdown. Otherwise it is Pending.
	Failed bool
}

// Final reports whether the pod never runs again with its current manifest.
func (h *Halt) Final() bool { return h.Deleted || h.Rejected }

// Within returns the grace period of a container during a bounded Halt; own is the one of its manifest.
func (h *Halt) Within(own time.Duration) time.Duration {
	if h.Deleted {
		return h.Grace
	}
	return min(own, h.Grace)
}

// Reasons of pods that a Gate does not let run.
const (
	// ReasonTerminated and MessageTerminated are the kubelet's for pods stopped by a node shutdown.
	ReasonTerminated  = "Terminated"
	MessageTerminated = "Pod was terminated in response to imminent node shutdown."
	// ReasonNodeShutdown and MessageNodeShutdown are the kubelet's for pods rejected during a node shutdown.
	ReasonNodeShutdown  = "NodeShutdown"
	MessageNodeShutdown = "Pod was rejected as the node is shutting down."
	// ReasonDrained is for pods stopped by a drain, ReasonCordoned for pods that are not started because of a drain or cordon.
	ReasonDrained  = "Drained"
	ReasonCordoned = "NodeUnschedulable"
	// ReasonHandedOver is for pods that are removed because another agent takes over the machine.
	ReasonHandedOver = "HandedOver"
	// ReasonDeleted is the reason of deleted pods whose objects are kept by finalizers.
	ReasonDeleted = "Deleted"
)

// CriticalPriority is the lowest priority of critical pods, that of the class system-cluster-critical.
const CriticalPriority = 2000000000

// Rule is the decision of a Gate about a pod. The zero Rule lets it run.
type Rule struct {
	// Wait prevents the creation of a pod that does not exist yet.
	Wait *Held
	// Halt stops a pod that exists.
	Halt *Halt
}

// RuleOf returns why a pod may never run again, whatever the machine is doing: it was deleted, or this machine rejects it.
func RuleOf(pod *manifests.Pod) (r Rule) {
	switch {
	case pod == nil:
	case pod.Deleted():
		why := cause.Cause{Kind: cause.Removing}
		message := "it has been deleted; finalizers keep its object: " + strings.Join(pod.Given.Finalizers, ", ")
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		if s := pod.Given.DeletionGracePeriodSeconds; s != nil {
			grace = max(0, min(*s, math.MaxInt32))
		}
		r.Wait = &Held{Reason: ReasonDeleted, Message: message, Cause: why, Final: true}
		r.Halt = &Halt{Reason: ReasonDeleted, Message: message, Cause: why, Deleted: true, Bounded: true, Grace: time.Duration(grace) * time.Second}
	case pod.Rejected != nil:
		why := cause.Cause{Kind: cause.PodFailed}
		r.Wait = &Held{Reason: pod.Rejected.Reason, Message: pod.Rejected.Message, Cause: why, Final: true, Failed: true}
		r.Halt = &Halt{Reason: pod.Rejected.Reason, Message: pod.Rejected.Message, Cause: why, Rejected: true, Failed: true}
	}
	return r
}
