package runner

import (
	"time"

	"monopod/internal/cause"
)

// Pods that are wanted and must not run nevertheless: the machine is going down, or somebody has drained it. What runs of
// them is stopped, and everything else of them stays: sandbox, address, volumes, records. When they may run again they go
// on as after a removal that was taken back.

// Halt says that a pod that is wanted is to be stopped, and to stay so.
type Halt struct {
	Reason, Message string
	// Cause is what keeps the pod from running.
	Cause cause.Cause
	// Bounded says that containers get Grace at most, whatever the manifest says.
	Bounded bool
	Grace   time.Duration
	// Remove says that nothing of the pod is to stay: somebody else is going to run it.
	Remove bool
	// Failed says that the pod counts as failed once it has stopped, as those do that a kubelet ends for a shutdown. Else
	// it is Pending.
	Failed bool
}

// Reasons of pods that a Gate keeps from running.
const (
	// ReasonTerminated, with MessageTerminated, is a kubelet's for pods that it stopped because the machine goes down.
	ReasonTerminated  = "Terminated"
	MessageTerminated = "Pod was terminated in response to imminent node shutdown."
	// ReasonNodeShutdown, with MessageNodeShutdown, is a kubelet's for pods that it does not start any more.
	ReasonNodeShutdown  = "NodeShutdown"
	MessageNodeShutdown = "Pod was rejected as the node is shutting down."
	// ReasonDrained is for pods that a drain has stopped, ReasonCordoned for those that are not started because of one.
	ReasonDrained  = "Drained"
	ReasonCordoned = "NodeUnschedulable"
	// ReasonHandedOver is for pods that are removed because another agent takes the machine over.
	ReasonHandedOver = "HandedOver"
)

// CriticalPriority is from where on pods are critical, as those of system-cluster-critical are.
const CriticalPriority = 2000000000

// Rule is what a Gate says about a pod. The zero Rule: it may run.
type Rule struct {
	// Wait keeps a pod of which nothing exists from being made.
	Wait *Held
	// Halt stops one of which something does.
	Halt *Halt
}
