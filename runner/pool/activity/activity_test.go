package activity

import (
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/runner"
)

// The network is set up while other actions are applied, and outlasts the action that started it.
func TestPhaseIsReportedUntilItEnds(t *testing.T) {
	t.Parallel()
	var d Actions
	now := time.Unix(100, 0)
	tick := func() time.Time { now = now.Add(time.Second); return now }
	ctx, end := d.Begin(t.Context(), runner.Action{Kind: runner.CreateSandbox}, tick)
	over := runner.BeginPhase(ctx, runner.PhaseNetwork)
	end()
	_, ended := d.Begin(t.Context(), runner.Action{Kind: runner.StartContainer, Container: "a"}, tick)
	want := []model.Doing{{Kind: string(runner.CreateSandbox), Phase: runner.PhaseNetwork, Since: time.Unix(102, 0)}, {Kind: string(runner.StartContainer), Container: "a", Since: time.Unix(103, 0)}}
	if got := d.List(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("doing %+v", got)
	}
	over()
	if got := d.List(); len(got) != 1 || got[0] != want[1] {
		t.Errorf("the phase is over, and doing %+v", got)
	}
	ended()
	if got := d.List(); len(got) > 0 {
		t.Errorf("all is over, and doing %+v", got)
	}
	runner.BeginPhase(t.Context(), runner.PhaseNetwork)() // a context without receiver
}
