package runner_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

var at = runtimetest.At

func TestStopCausesThatAreFailures(t *testing.T) {
	for cause, want := range map[runner.StopCause]bool{
		runner.StopUnwanted: false, runner.StopRestartAll: false,
		runner.StopPostStart: true, runner.StopLivenessProbe: true, runner.StopStartupProbe: true,
	} {
		if got := cause.Failed(); got != want {
			t.Errorf("%q: %t", cause, got)
		}
	}
}

func TestLeavingContainer(t *testing.T) {
	for _, tt := range []struct {
		sent, announced time.Time
		want            bool
	}{
		{time.Time{}, time.Time{}, false},
		{at(1), time.Time{}, true},
		{time.Time{}, at(1), true},
		{at(2), at(1), true},
	} {
		c := runner.Container{StopSentAt: tt.sent, StoppingAt: tt.announced}
		if got := c.Leaving(); got != tt.want {
			t.Errorf("signal at %s, announced at %s: %t", tt.sent, tt.announced, got)
		}
	}
}

func TestEndingTellsWhatEndedTheInstance(t *testing.T) {
	with := runtimetest.With
	unknown := func(c *runner.Container) { c.Exit.Reason, c.Exit.ExitCode = runner.ReasonUnknown, 255 }
	for _, tt := range []struct {
		name   string
		change func(*runner.Container)
		want   runner.EndedBy
	}{
		{"by itself", func(*runner.Container) {}, ""},
		{"the agent stopped it", func(c *runner.Container) { c.StopSentAt = at(8) }, runner.EndedByAgent},
		{"the agent was about to", func(c *runner.Container) { c.StoppingAt = at(8) }, runner.EndedByAgent},
		{"all containers were restarted", func(c *runner.Container) { c.StopSentAt, c.StopCause = at(8), runner.StopRestartAll }, runner.EndedByAgent},
		{"its probe failed", func(c *runner.Container) { c.StopSentAt, c.StopCause = at(8), runner.StopLivenessProbe }, ""},
		{"its hook failed", func(c *runner.Container) { c.StopSentAt, c.StopCause = at(8), runner.StopPostStart }, ""},
		{"the machine went down", func(c *runner.Container) { unknown(c); c.EarlierBoot = true }, runner.EndedByReboot},
		{"before the machine went down", func(c *runner.Container) { c.EarlierBoot = true }, ""},
		{"nobody saw it", unknown, ""},
		{"the machine went down while it was stopped", func(c *runner.Container) {
			unknown(c)
			c.EarlierBoot, c.StopSentAt = true, at(8)
		}, runner.EndedByAgent},
	} {
		c := with(runtimetest.Exited("1", "a", 1, 9), tt.change)
		before := *c.Exit
		end := c.Ending()
		if end.By != tt.want {
			t.Errorf("%s: ended by %q, want %q", tt.name, end.By, tt.want)
		}
		if *c.Exit != before || end == c.Exit {
			t.Errorf("%s: the exit itself changed: %+v", tt.name, c.Exit)
		}
		if stopped := c.StopCause.Failed(); stopped != (end.Stop == c.StopCause && end.Stop != "") {
			t.Errorf("%s: stopped for %q", tt.name, end.Stop)
		}
		if end.By, end.Stop = "", ""; *end != before {
			t.Errorf("%s: %+v, want %+v", tt.name, *end, before)
		}
	}
	if c := runtimetest.Running("1", "a", 1); c.Ending() != nil {
		t.Error("a running container has an end")
	}
}

// The labels of containers hold terminations; those that earlier versions wrote must stay readable.
func TestTerminationSurvivesStorage(t *testing.T) {
	for text, end := range map[string]runner.Termination{
		`{"containerID":"1","exitCode":0,"reason":"Completed"}`: {ContainerID: "1", Reason: runner.ReasonCompleted},
		`{"containerID":"1","exitCode":143,"reason":"Error","message":"bye","startedAt":"2026-01-02T03:00:01Z","finishedAt":"2026-01-02T03:00:09Z","by":"Agent"}`: {
			ContainerID: "1", ExitCode: 143, Reason: runner.ReasonError, Message: "bye", StartedAt: at(1), FinishedAt: at(9), By: runner.EndedByAgent,
		},
		`{"containerID":"1","exitCode":137,"reason":"Error","stop":"LivenessProbe"}`: {ContainerID: "1", ExitCode: 137, Reason: runner.ReasonError, Stop: runner.StopLivenessProbe},
		`{"containerID":"1","exitCode":128,"reason":"StartError","by":"Reboot","cause":{"kind":"CommandNotFound","program":"/srv"}}`: {
			ContainerID: "1", ExitCode: runner.ExitCodeStartError, Reason: runner.ReasonStartError, By: runner.EndedByReboot,
			Cause: cause.Cause{Kind: cause.CommandNotFound, Program: "/srv"},
		},
	} {
		b, err := json.Marshal(end)
		if err != nil || string(b) != text {
			t.Errorf("%s %v, want %s", b, err, text)
		}
		var back runner.Termination
		if err := json.Unmarshal([]byte(text), &back); err != nil || back != end {
			t.Errorf("%s became %+v, %v", text, back, err)
		}
	}
}

// Records of containerd and the API of the kubelet contain these words.
func TestStoredWordsDoNotChange(t *testing.T) {
	for _, tt := range []struct {
		got  any
		want string
	}{
		{[]runner.NetworkState{runner.NetworkPending, runner.NetworkReady}, "[Pending Ready]"},
		{[]runner.ContainerState{runner.ContainerCreated, runner.ContainerRunning, runner.ContainerExited}, "[Created Running Exited]"},
		{[]runner.PostStart{runner.PostStartNone, runner.PostStartPending, runner.PostStartDone}, "[ Pending Done]"},
		{
			[]runner.StopCause{runner.StopUnwanted, runner.StopPostStart, runner.StopRestartAll, runner.StopLivenessProbe, runner.StopStartupProbe},
			"[ PostStartHookError RestartingAllContainers LivenessProbe StartupProbe]",
		},
		{[]runner.EndedBy{runner.EndedByAgent, runner.EndedByReboot}, "[Agent Reboot]"},
		{
			[]string{runner.ReasonCompleted, runner.ReasonError, runner.ReasonOOMKilled, runner.ReasonStartError, runner.ReasonUnknown},
			"[Completed Error OOMKilled StartError Unknown]",
		},
		{
			[]string{
				runner.ReasonErrImagePull, runner.ReasonImagePullBackOff, runner.ReasonErrImageNeverPull, runner.ReasonInvalidImageName,
				runner.ReasonImageInspectError, runner.ReasonSignatureValidationFailed, runner.ReasonImageNotAllowed,
			},
			"[ErrImagePull ImagePullBackOff ErrImageNeverPull InvalidImageName ImageInspectError SignatureValidationFailed ImageNotAllowed]",
		},
		{
			[]string{
				runner.ReasonCreateContainerConfigError, runner.ReasonCreateContainerError, runner.ReasonRunContainerError,
				runner.ReasonCreatePodSandboxError, runner.ReasonCrashLoopBackOff, runner.ReasonFailedMount, runner.ReasonContainerCreating,
				runner.ReasonPodInitializing, runner.ReasonPostStartHookError,
			},
			"[CreateContainerConfigError CreateContainerError RunContainerError CreatePodSandboxError CrashLoopBackOff FailedMount ContainerCreating " +
				"PodInitializing PostStartHookError]",
		},
		{
			[]string{
				runner.ReasonDeadlineExceeded, runner.ReasonEvicted, runner.ReasonPreempting, runner.ReasonTerminated, runner.ReasonNodeShutdown,
				runner.ReasonCordoned, runner.ReasonDrained, runner.ReasonHandedOver, runner.ReasonHostPortConflict,
			},
			"[DeadlineExceeded Evicted Preempting Terminated NodeShutdown NodeUnschedulable Drained HandedOver HostPortConflict]",
		},
	} {
		if got := fmt.Sprint(tt.got); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

func TestActionsInLogs(t *testing.T) {
	for want, a := range map[string]runner.Action{
		"RecordPod":                            {Kind: runner.RecordPod},
		"CreateSandbox (pod added)":            {Kind: runner.CreateSandbox, Reason: "pod added", UID: "u"},
		"EnsureImage web":                      {Kind: runner.EnsureImage, Container: "web"},
		"StopContainer web (pod has failed)":   {Kind: runner.StopContainer, Container: "web", ContainerID: "1", Reason: "pod has failed"},
		"UpdateResources (resources changed)":  {Kind: runner.UpdateResources, Reason: "resources changed"},
		"RemoveContainer web (node restarted)": {Kind: runner.RemoveContainer, Container: "web", Reason: "node restarted", Manifest: runner.RecordedManifest},
	} {
		if got := a.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStepErrorKeepsItsCause(t *testing.T) {
	inner := errors.New("no such image")
	err := fmt.Errorf("container a: %w", &runner.StepError{Reason: runner.ReasonErrImagePull, Err: inner})
	step, ok := errors.AsType[*runner.StepError](err)
	if !ok || step.Reason != runner.ReasonErrImagePull || !errors.Is(err, inner) || err.Error() != "container a: no such image" {
		t.Errorf("%v: %+v", err, step)
	}
}

func TestHealthInWordsAndStorage(t *testing.T) {
	for _, tt := range []struct {
		health     runner.Health
		word, text string
	}{
		{runner.Health{}, "not started", `{"started":false,"ready":false}`},
		{runner.Health{Started: true, Since: at(3)}, "started, not ready", `{"started":true,"ready":false,"since":"2026-01-02T03:00:03Z"}`},
		{runner.Health{Started: true, Ready: true, Since: at(3)}, "ready", `{"started":true,"ready":true,"since":"2026-01-02T03:00:03Z"}`},
	} {
		if got := tt.health.String(); got != tt.word {
			t.Errorf("%+v is %q, want %q", tt.health, got, tt.word)
		}
		var back runner.Health
		if b, err := json.Marshal(tt.health); err != nil || string(b) != tt.text || json.Unmarshal(b, &back) != nil || back != tt.health {
			t.Errorf("%s %v, want %s; became %+v", b, err, tt.text, back)
		}
	}
}
