package model

import (
	"time"

	"monopod/internal/cause"
)

// Trouble is the first problem of a pod. The zero value means none.
type Trouble struct {
	Kind TroubleKind
	// Container is the container concerned; empty means the pod.
	Container string
	// Reason and Message are those of a failed step, of a held or failed pod, or of the unreachable runtime.
	Reason, Message string
	// Count is the number of consecutive failures of a step, At the time of the latest.
	Count int
	At    time.Time
	// Cause is the cause of the problem; its kind may be empty if Kind is sufficient. For a probe, it distinguishes a failure from one that
	// has not succeeded yet.
	Cause cause.Cause
	// Final reports that an exited container is not restarted.
	Final bool
	// Stopping is set while the container is being stopped because a probe has failed.
	Stopping bool
	// Text is the problem in one line.
	Text string
}

// TroubleKind is the kind of a problem.
type TroubleKind string

// Kinds of trouble.
const (
	NoTrouble TroubleKind = ""
	// TroubleBlind means that the runtime cannot be reached.
	TroubleBlind TroubleKind = "Blind"
	// TroubleRemoving means that the pod is no longer desired.
	TroubleRemoving TroubleKind = "Removing"
	// TroubleHeld means that the pod has to wait for another pod.
	TroubleHeld TroubleKind = "Held"
	// TroubleHalted means that the pod must not run now.
	TroubleHalted TroubleKind = "Halted"
	// TroubleStep means that a step failed and is being retried.
	TroubleStep TroubleKind = "Step"
	// TroubleFailed means that the pod has failed as a whole.
	TroubleFailed TroubleKind = "Failed"
	// TroubleInProgress means that an operation takes its time; it is not a failure.
	TroubleInProgress TroubleKind = "InProgress"
	// TroubleExited means that the container has ended.
	TroubleExited TroubleKind = "Exited"
	// TroubleProbe means that a probe has failed, or has not succeeded yet.
	TroubleProbe TroubleKind = "Probe"
	// TroubleResize means that resources cannot be changed.
	TroubleResize TroubleKind = "Resize"
	// TroubleKept means that the manifest has not been read yet in this run.
	TroubleKept TroubleKind = "Kept"
)

// Doing is an action that the runtime is applying.
type Doing struct {
	Kind string
	// Container is the container concerned; empty means the pod.
	Container string
	// Phase is the current part of the action; empty means the action as a whole. The network is set up while other actions are applied.
	Phase string
	// Since is when it began, by the machine's clock.
	Since time.Time
}
