package runner

import (
	"context"
	"time"
)

// Phase is a part of an action whose duration is measured separately. It may outlast the action.
type Phase struct {
	// Name is one of the constants below.
	Name        string
	Began, Over time.Time
	Err         error
}

// Phases.
const (
	// PhaseNetwork is the setup of the pod network.
	PhaseNetwork = "set up network"
	// PhaseVolumes is the creation or lookup of the volumes of a container, and filling them.
	PhaseVolumes = "prepare volumes"
)

type phaseKey struct{}

// WithPhases returns a context for an action that passes completed phases to tell. tell must not block and may be called after the action
// has been applied.
func WithPhases(ctx context.Context, tell func(Phase)) context.Context {
	return context.WithValue(ctx, phaseKey{}, tell)
}

type beginKey struct{}

// WithBegin returns a context for an action. begin is called when a phase begins; the function that it returns is called when the phase
// ends.
func WithBegin(ctx context.Context, begin func(phase string) (end func())) context.Context {
	return context.WithValue(ctx, beginKey{}, begin)
}

// BeginPhase reports the begin of a phase; the caller, a Runtime, must call end when the phase is over. ReportPhase reports its result.
func BeginPhase(ctx context.Context, name string) (end func()) {
	if begin, ok := ctx.Value(beginKey{}).(func(string) func()); ok {
		return begin(name)
	}
	return func() {}
}

// ReportPhase reports a completed phase. It is called by a Runtime.
func ReportPhase(ctx context.Context, p Phase) {
	if tell, ok := ctx.Value(phaseKey{}).(func(Phase)); ok {
		tell(p)
	}
}
