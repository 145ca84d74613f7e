package runner

import (
	"context"
	"time"
)

// Phase is a part of an action that takes time of its own. It may go on after the action.
type Phase struct {
	// Name is one of the constants below.
	Name        string
	Began, Over time.Time
	Err         error
}

// Phases.
const (
	// PhaseNetwork: the pod gets its network.
	PhaseNetwork = "set up network"
	// PhaseVolumes: the volumes of a container are made or looked for, and filled.
	PhaseVolumes = "prepare volumes"
)

type phaseKey struct{}

// WithPhases returns a context for an action: tell, which must not block, hears of its phases that are over. It may be called
// after the action has been applied.
func WithPhases(ctx context.Context, tell func(Phase)) context.Context {
	return context.WithValue(ctx, phaseKey{}, tell)
}

type beginKey struct{}

// WithBegin returns a context for an action: begin hears of its phases when they begin, and the function that it returns when they end.
func WithBegin(ctx context.Context, begin func(phase string) (end func())) context.Context {
	return context.WithValue(ctx, beginKey{}, begin)
}

// BeginPhase is called by a Runtime when a phase begins; end, when it is over. TellPhase says how it went.
func BeginPhase(ctx context.Context, name string) (end func()) {
	if begin, ok := ctx.Value(beginKey{}).(func(string) func()); ok {
		return begin(name)
	}
	return func() {}
}

// TellPhase is called by a Runtime when a phase is over.
func TellPhase(ctx context.Context, p Phase) {
	if tell, ok := ctx.Value(phaseKey{}).(func(Phase)); ok {
		tell(p)
	}
}
