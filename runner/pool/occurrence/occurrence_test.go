package occurrence_test

import (
	"errors"
	"testing"

	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/pool/occurrence"
)

func TestEventsOfActions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action   runner.Action
		removing bool
		want     string
	}{
		{runner.Action{Kind: runner.StartContainer}, false, "Normal Started Container started"},
		{runner.Action{Kind: runner.StopContainer, Container: "a", Reason: "pod removed"}, true, "Normal Killing Stopping container a (pod removed)"},
		{runner.Action{Kind: runner.StopContainer, Container: "a", Cause: runner.StopLivenessProbe}, false, "Normal Killing Container a failed liveness probe, will be restarted"},
		{runner.Action{Kind: runner.RemoveSandbox}, false, "Normal SandboxChanged Pod sandbox changed, it will be killed and re-created."},
		{runner.Action{Kind: runner.RemoveSandbox}, true, ""},
		{runner.Action{Kind: runner.RecordEphemeral}, false, ""},
	} {
		got, ok := occurrence.Applied(c.action, c.removing)
		if text := got.Kind + " " + got.Reason + " " + got.Message; ok != (c.want != "") || ok && text != c.want {
			t.Errorf("%s: %v %q", c.action.Kind, ok, text)
		}
	}
}

func TestEventsOfFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   runner.ActionKind
		reason string
		want   string
	}{
		{runner.EnsureImage, runner.ReasonErrImagePull, `Failed Failed to pull image "i:1": no`},
		{runner.EnsureImage, runner.ReasonErrImageNeverPull, "ErrImageNeverPull no"},
		{runner.CreateSandbox, runner.ReasonCreatePodSandboxError, "FailedCreatePodSandBox Failed to create pod sandbox: no"},
		{runner.RemoveContainer, "", "FailedKillPod error killing pod: no"},
		{runner.StartContainer, "", "Failed Error: no"},
	} {
		got := occurrence.Failed(runner.Action{Kind: c.kind}, plan.Failure{Reason: c.reason}, "i:1", errors.New("no"))
		if text := got.Reason + " " + got.Message; text != c.want || got.Kind != "Warning" {
			t.Errorf("%s: %s %q", c.kind, got.Kind, text)
		}
	}
}

func TestEventsOfExits(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{0: "Normal", 3: "Warning"} {
		if got := occurrence.Exit(&runner.Termination{ExitCode: code, Reason: "Error"}, false); got.Kind != want {
			t.Errorf("%d: %+v", code, got)
		}
	}
	if got := occurrence.Exit(&runner.Termination{ExitCode: 143}, true); got.Kind != "Normal" {
		t.Errorf("a container that was stopped: %+v", got)
	}
}
