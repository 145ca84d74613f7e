package runner

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Pods that are wanted and must not run nevertheless: the machine is going down, or somebody has drained it. What runs of
// them is stopped, and everything else of them stays: sandbox, address, volumes, records. When they may run again they go
// on as after a removal that was taken back.

// Halt says that a pod that is wanted is to be stopped, and to stay so.
type Halt struct {
	Reason, Message string
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

// Gate decides which pods may run. It must be quick, and not call the Pool.
type Gate func(*manifests.Pod) Rule

// Gate replaces the Gate of the pool; nil: every pod may run. It never blocks.
func (p *Pool) Gate(g Gate) {
	p.mu.Lock()
	p.gate = g
	p.mu.Unlock()
	signal(p.trigger)
}

// gateLocked asks the Gate about a pod.
func (p *Pool) gateLocked(e *entry) Rule {
	wanted := e.wish.round == p.round
	pod := e.report.holds
	if wanted {
		pod = e.wish.pod
	}
	r := Rule{}
	if p.gate != nil && pod != nil {
		r = p.gate(pod)
	}
	if wanted && r.Wait == nil && p.barrier != nil {
		r.Wait = p.barrier(e.wish.pod)
	}
	if !wanted || e.report.seen && e.report.holds != nil && !e.comesBack() || e.place != nil && r.Halt == nil {
		r.Wait = nil
	}
	return r
}

// sameHalt says that nothing changes for the pod.
func sameHalt(a, b *Halt) bool { return a == b || a != nil && b != nil && *a == *b }

// halt stops what runs and leaves one instance of each container on record.
func (p *planner) halt() {
	switch {
	case p.o.Halt.Remove:
		p.remove()
	case p.o.Sandbox != nil:
		p.end("halted: " + p.o.Halt.Reason)
	}
}

// halted says that the pod stands still although it has something to do.
func (s *statusBuilder) halted() bool {
	return s.Halt != nil && s.Sandbox != nil && !s.Removing && s.failure() == nil && !s.initFailed() && s.unfinished()
}

// unfinished says that something of the pod runs or would be started.
func (s *statusBuilder) unfinished() bool {
	return slices.ContainsFunc(s.pod.Spec.Containers, func(spec corev1.Container) bool {
		c := shownInstance(s.Containers, spec.Name)
		return c == nil || c.State != ContainerExited || s.restart(c).Wanted
	})
}

// haltedPhase is that of a halted pod of which nothing runs.
func (s *statusBuilder) haltedPhase() corev1.PodPhase {
	if s.Halt.Failed {
		return corev1.PodFailed
	}
	return corev1.PodPending
}

// stopping says that something of the pod runs.
func (s *statusBuilder) stopping() bool {
	return slices.ContainsFunc(s.Containers, func(c Container) bool { return c.State == ContainerRunning })
}

func (s *statusBuilder) troubleHalted() Trouble {
	h := s.Halt
	t := Trouble{Kind: TroubleHalted, Reason: h.Reason, Message: h.Message, Text: h.Reason + ": " + h.Message}
	if s.stopping() {
		t.Text = fmt.Sprintf("being stopped: %s: %s", h.Reason, h.Message)
	}
	return t
}

// Halted says that the pod must not run now.
func (s *PodStatus) Halted() bool { return s.halt != nil }

// Stopped says that nothing of a pod runs, nor is going to while its Halt lasts.
func (s *PodStatus) Stopped() bool {
	return s.Looked && s.halt != nil && !s.running && (!s.halt.Remove || !s.exists)
}
