package runner_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"monopod/runner"
)

func TestPhasesReachTheCaller(t *testing.T) {
	var told []runner.Phase
	var running []string
	ctx := runner.WithPhases(t.Context(), func(p runner.Phase) { told = append(told, p) })
	ctx = runner.WithBegin(ctx, func(phase string) func() {
		running = append(running, phase)
		return func() { running = slices.DeleteFunc(running, func(s string) bool { return s == phase }) }
	})
	network := runner.BeginPhase(ctx, runner.PhaseNetwork)
	volumes := runner.BeginPhase(ctx, runner.PhaseVolumes)
	if !slices.Equal(running, []string{"set up network", "prepare volumes"}) {
		t.Errorf("running: %q", running)
	}
	network()
	if !slices.Equal(running, []string{"prepare volumes"}) {
		t.Errorf("then: %q", running)
	}
	volumes()
	want := runner.Phase{Name: runner.PhaseNetwork, Began: at(1), Over: at(2), Err: errors.New("no bridge")}
	runner.ReportPhase(ctx, want)
	if len(running) != 0 || !slices.Equal(told, []runner.Phase{want}) {
		t.Errorf("running %q, told %+v", running, told)
	}
}

func TestPhasesNeedNoCaller(t *testing.T) {
	runner.BeginPhase(t.Context(), runner.PhaseNetwork)()
	runner.ReportPhase(t.Context(), runner.Phase{Name: runner.PhaseNetwork})
	ctx := runner.WithPhases(t.Context(), func(p runner.Phase) { t.Errorf("told %+v", p) })
	runner.BeginPhase(ctx, runner.PhaseVolumes)() // the end is reported by ReportPhase only
}

func TestImageProgressReachesAllCallers(t *testing.T) {
	var outer, inner []runner.ImageProgress
	ctx := t.Context()
	if runner.WantsImageProgress(ctx) {
		t.Error("a context without a receiver has one")
	}
	runner.ReportImageProgress(ctx, runner.ImageProgress{Image: "lost"})
	ctx = runner.WithImageProgress(ctx, func(p runner.ImageProgress) { outer = append(outer, p) })
	both := runner.WithImageProgress(ctx, func(p runner.ImageProgress) { inner = append(inner, p) })
	if !runner.WantsImageProgress(ctx) || !runner.WantsImageProgress(both) {
		t.Error("a context with a receiver has none")
	}
	first, second := runner.ImageProgress{Image: "a", Pulling: true}, runner.ImageProgress{Image: "a", Present: true, Size: 7}
	runner.ReportImageProgress(both, first)
	runner.ReportImageProgress(context.WithoutCancel(both), second)
	runner.ReportImageProgress(ctx, runner.ImageProgress{Image: "b"})
	if want := []runner.ImageProgress{first, second}; !slices.Equal(inner, want) || !slices.Equal(outer, append(want, runner.ImageProgress{Image: "b"})) {
		t.Errorf("inner %+v, outer %+v", inner, outer)
	}
}
