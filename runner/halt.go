package runner

import (
	"time"

	"monopod/internal/cause"
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
	// Failed makes the pod Failed once it has stopped, as the kubelet does on a node shutdown. Otherwise it is Pending.
	Failed bool
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
