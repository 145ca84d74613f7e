package retry_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
)

func TestNextRestart(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	exited := func(code int, ran, since, backOff time.Duration) runner.Container {
		return runner.Container{
			State: runner.ContainerExited, StartedAt: ago(since + ran), BackOff: backOff,
			Exit: &runner.Termination{ExitCode: code, FinishedAt: ago(since)},
		}
	}
	stopped := exited(0, time.Minute, 0, 40*time.Second)
	stopped.StopSentAt = ago(time.Second)
	unfinished := exited(255, 0, 0, 40*time.Second)
	unfinished.Exit.FinishedAt = time.Time{}
	neverRan := runner.Container{State: runner.ContainerExited, Exit: &runner.Termination{ExitCode: 255, FinishedAt: now}, BackOff: time.Minute}
	tests := []struct {
		name    string
		policy  corev1.RestartPolicy
		c       runner.Container
		max     time.Duration
		wanted  bool
		in      time.Duration // from now; negative: overdue
		backOff time.Duration
	}{
		{"Always restarts after a success, the first time at once", "Always", exited(0, time.Second, 0, 0), 0, true, 0, 10 * time.Second},
		{"Always restarts after a failure", "Always", exited(1, time.Second, 0, 0), 0, true, 0, 10 * time.Second},
		{"OnFailure restarts after a failure", "OnFailure", exited(1, time.Second, 0, 0), 0, true, 0, 10 * time.Second},
		{"OnFailure does not restart after a success", "OnFailure", exited(0, time.Second, 0, 0), 0, false, 0, 0},
		{"Never does not restart after a failure", "Never", exited(1, time.Second, 0, 0), 0, false, 0, 0},
		{"the second restart waits 10 s from the exit", "Always", exited(1, time.Second, 3*time.Second, 10*time.Second), 0, true, 7 * time.Second, 20 * time.Second},
		{"the wait doubles", "Always", exited(1, time.Second, 0, 80*time.Second), 0, true, 80 * time.Second, 160 * time.Second},
		{"but not beyond 300 s", "Always", exited(1, time.Second, 0, 160*time.Second), 0, true, 160 * time.Second, 300 * time.Second},
		{"where it stays", "Always", exited(1, time.Second, 0, 300*time.Second), 0, true, 300 * time.Second, 300 * time.Second},
		{"exactly ten minutes do not reset it", "Always", exited(1, 600*time.Second, 0, 300*time.Second), 0, true, 300 * time.Second, 300 * time.Second},
		{"more than ten minutes do", "Always", exited(1, 601*time.Second, 0, 300*time.Second), 0, true, 0, 10 * time.Second},
		{"a small limit is also the first wait", "Always", exited(1, time.Second, 0, 0), 3 * time.Second, true, 0, 3 * time.Second},
		{"a limit counts for a wait that was recorded before it", "Always", exited(1, time.Second, 0, 300*time.Second), 60 * time.Second, true, 60 * time.Second, 60 * time.Second},
		{"a limit above 300 s is 300 s", "Always", exited(1, time.Second, 0, 300*time.Second), time.Hour, true, 300 * time.Second, 300 * time.Second},
		{"a limit below 1 s is 1 s", "Always", exited(1, time.Second, 0, 300*time.Second), time.Millisecond, true, time.Second, time.Second},
		{"an exit in the future does not block", "Always", exited(1, time.Second, -time.Hour, 300*time.Second), 0, true, 0, 300 * time.Second},
		{"an exit at an unknown time does not block", "Always", unfinished, 0, true, 0, 80 * time.Second},
		{"what we stopped starts at once and afresh", "Always", stopped, 0, true, 0, 0},
		{"what we stopped starts even with Never", "Never", stopped, 0, true, 0, 0},
		{"what never ran starts even with Never", "Never", neverRan, 0, true, 0, 0},
		{"a long past exit is due", "Always", exited(1, time.Second, time.Hour, 300*time.Second), 0, true, -55 * time.Minute, 300 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := retry.Next(now, tt.policy, &tt.c, plan.Options{MaxBackOff: tt.max}.BackOffLimit())
			if r.Wanted != tt.wanted || r.Reason == "" {
				t.Fatalf("wanted %t (%s), want %t", r.Wanted, r.Reason, tt.wanted)
			}
			if !r.Wanted {
				return
			}
			if in := r.At.Sub(now); in != tt.in {
				t.Errorf("restarts in %s, want %s", in, tt.in)
			}
			if r.BackOff != tt.backOff {
				t.Errorf("the next back-off is %s, want %s", r.BackOff, tt.backOff)
			}
		})
	}
}

func TestCrashLoopBackOffMatchesKubelet(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	c := runner.Container{State: runner.ContainerExited, StartedAt: now, Exit: &runner.Termination{ExitCode: 1, FinishedAt: now}}
	for i, want := range []int{0, 10, 20, 40, 80, 160, 300, 300} {
		r := retry.Next(now, corev1.RestartPolicyAlways, &c, retry.MaxBackOff)
		if got := int(r.At.Sub(now).Seconds()); got != want {
			t.Errorf("restart %d after %d s, want %d", i+1, got, want)
		}
		now = r.At.Add(time.Second)
		c = runner.Container{State: runner.ContainerExited, StartedAt: r.At, BackOff: r.BackOff, Exit: &runner.Termination{ExitCode: 1, FinishedAt: now}}
	}
}

func TestBackOffOfFailuresByReason(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	tests := []struct {
		reason string
		count  int
		want   time.Duration
	}{
		{runner.ReasonErrImagePull, 1, 10 * time.Second},
		{runner.ReasonErrImagePull, 2, 20 * time.Second},
		{runner.ReasonErrImageNeverPull, 5, 160 * time.Second},
		{runner.ReasonInvalidImageName, 6, 300 * time.Second},
		{runner.ReasonErrImagePull, 1000, 300 * time.Second},
		{runner.ReasonCreateContainerError, 1, time.Second},
		{runner.ReasonCreatePodSandboxError, 4, 8 * time.Second},
		{runner.ReasonRunContainerError, 1000, 60 * time.Second},
	}
	for _, tt := range tests {
		if got := (retry.Failure{Reason: tt.reason, Count: tt.count, At: at}).Due().Sub(at); got != tt.want {
			t.Errorf("%s for the %dth time waits %s, want %s", tt.reason, tt.count, got, tt.want)
		}
	}
}
