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

// TellPhase is called by a Runtime when a phase is over.
func TellPhase(ctx context.Context, p Phase) {
	if tell, ok := ctx.Value(phaseKey{}).(func(Phase)); ok {
		tell(p)
	}
}
