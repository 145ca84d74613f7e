// Package admission decides which pods may run on this machine now: a drain, a cordon, a shutdown of the machine, a hand-over to another agent and
// pressure keep pods from running.
//
// It must not stop containers itself: the pool asks it for a Rule for each pod. Controller.Run follows one drain at a time, in the goroutine of
// its caller.
package admission

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/node/drain"
	"monopod/node/pressure"
	"monopod/node/shutdown"
	"monopod/runner"
)

// State is everything that keeps pods from running. The zero State: every pod may run.
type State struct {
	Drain drain.State
	// Level is the highest priority whose pods a drain stops now; nil: pods of every priority stop.
	Level *int32
	// Shutdown is the progress of a shutdown of the machine; nil: there is none.
	Shutdown *shutdown.Progress
	// HandedOver reports that another agent takes over the machine.
	HandedOver bool
}

// Open reports whether every pod may run.
func (s *State) Open() bool { return !s.HandedOver && !s.Drain.Cordoned && s.Shutdown == nil }

// Rule returns what keeps a pod from running. A hand-over comes before a shutdown, a shutdown before a drain.
func (s *State) Rule(pod *manifests.Pod) runner.Rule {
	priority := manifests.PriorityOf(pod).Value
	switch {
	case s.HandedOver:
		return handedOver()
	case s.Shutdown != nil:
		return shuttingDown(s.Shutdown, priority)
	case !s.Drain.Cordoned:
		return runner.Rule{}
	case !s.Drain.Stops(pod.Key(), priority):
		return runner.Rule{Wait: &runner.Held{Reason: runner.ReasonCordoned, Message: "this machine is cordoned; `monopod uncordon` lets the pod start", Cause: cause.Cause{Kind: cause.Drained, Fault: cause.Cordoned}}}
	}
	return drained(s.Level == nil || priority <= *s.Level)
}

// Stopping returns the pods that have to stop and still run.
func (s *State) Stopping(pods []drain.Pod) []drain.Pod {
	var left []drain.Pod
	for _, p := range pods {
		if !p.Stopped && (s.HandedOver || s.Shutdown != nil || s.Drain.Stops(p.Key, p.Priority)) {
			left = append(left, p)
		}
	}
	return left
}

func drained(now bool) runner.Rule {
	why := cause.Cause{Kind: cause.Drained}
	const text = "this machine is drained; the pod resumes after `monopod undrain`"
	r := runner.Rule{Wait: &runner.Held{Reason: runner.ReasonDrained, Message: text, Cause: why}}
	if now {
		r.Halt = &runner.Halt{Reason: runner.ReasonDrained, Message: text, Cause: why}
	}
	return r
}

func shuttingDown(p *shutdown.Progress, priority int32) runner.Rule {
	why := cause.Cause{Kind: cause.ShuttingDown}
	r := runner.Rule{Wait: &runner.Held{Reason: runner.ReasonNodeShutdown, Message: runner.MessageNodeShutdown, Cause: why}}
	if grace, due := p.Due(priority); due {
		r.Halt = &runner.Halt{Reason: runner.ReasonTerminated, Message: runner.MessageTerminated, Cause: why, Bounded: true, Grace: grace, Failed: true}
	}
	return r
}

func handedOver() runner.Rule {
	why := cause.Cause{Kind: cause.ShuttingDown, Fault: cause.HandedOver}
	const text = "another agent takes over this machine"
	return runner.Rule{
		Wait: &runner.Held{Reason: runner.ReasonHandedOver, Message: text, Cause: why},
		Halt: &runner.Halt{Reason: runner.ReasonHandedOver, Message: text, Cause: why, Remove: true},
	}
}

// UnderPressure returns why a pod must not start while these conditions of the node are true; nil: it may.
func UnderPressure(pod *manifests.Pod, conditions []corev1.NodeConditionType) *runner.Held {
	message := pressure.Admit(pod, conditions)
	if message == "" {
		return nil
	}
	return &runner.Held{Reason: runner.ReasonEvicted, Message: message, Cause: cause.Cause{Kind: cause.UnderPressure}}
}
