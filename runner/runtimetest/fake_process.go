package runtimetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/runner"
)

// Scripts that containers of tests run: `sh -c SCRIPT`. A real shell runs them, the fake knows them by heart.
const (
	// ScriptServe runs until SIGTERM, then exits with 0 at once.
	ScriptServe = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"
	// ScriptStubborn ignores SIGTERM.
	ScriptStubborn = "trap '' TERM; while :; do sleep 1; done"
	// ScriptSlowStop takes 200 ms to stop, then exits with 4.
	ScriptSlowStop = "trap 'sleep 0.2; exit 4' TERM; while :; do sleep 1 & wait $!; done"
	// ScriptUser exits with 5 on SIGUSR1 and ignores SIGTERM.
	ScriptUser = "trap 'exit 5' USR1; trap '' TERM; while :; do sleep 1 & wait $!; done"
	// ScriptSucceed exits with 0 at once.
	ScriptSucceed = "exit 0"
	// ScriptFail exits with 3 at once.
	ScriptFail = "exit 3"
	// ScriptFailSoon exits with 7 after half a second.
	ScriptFailSoon = "sleep 0.5; exit 7"
	// ScriptEatMemory needs more memory than any test allows.
	ScriptEatMemory = "x=x; while :; do x=$x$x; done"
	// ScriptHang cannot even be killed; only the fake has it.
	ScriptHang = "hang"
	// ScriptCannotStart is created, but cannot be started; only the fake has it.
	ScriptCannotStart = "cannot start"
)

// MissingCommand is a program that no image has.
const MissingCommand = "/no/such/program"

// process is how a script behaves.
type process struct {
	runs        bool // until it is stopped
	after       time.Duration
	code        int
	reason      string
	ignoresTerm bool
	unkillable  bool
	signal      string // it exits with 5 on this one
	termAfter   time.Duration
	termCode    int
	createError error
	startError  error
}

func newProcess(c *corev1.Container) process {
	if len(c.Command) > 0 && c.Command[0] == MissingCommand {
		return process{createError: &runner.StepError{
			Reason: runner.ReasonRunContainerError,
			Err: cause.Wrap(
				fmt.Errorf("exec: %q: no such file or directory", MissingCommand),
				cause.Cause{Kind: cause.CommandNotFound, Program: MissingCommand},
			),
		}}
	}
	script := ""
	if n := len(c.Command); n > 0 {
		script = c.Command[n-1]
	}
	switch script {
	case ScriptCannotStart:
		return process{startError: &runner.StepError{
			Reason: runner.ReasonRunContainerError, Err: errors.New("start task: no such device"),
		}}
	case ScriptServe:
		return process{runs: true}
	case ScriptStubborn:
		return process{runs: true, ignoresTerm: true}
	case ScriptUser:
		return process{runs: true, ignoresTerm: true, signal: "SIGUSR1"}
	case ScriptHang:
		return process{runs: true, ignoresTerm: true, unkillable: true}
	case ScriptSlowStop:
		return process{runs: true, termAfter: 200 * time.Millisecond, termCode: 4}
	case ScriptSucceed:
		return process{}
	case ScriptFail:
		return process{code: 3}
	case ScriptEatMemory:
		return process{code: 137, reason: runner.ReasonOOMKilled}
	case ScriptFailSoon:
		return process{after: 500 * time.Millisecond, code: 7}
	}
	if after, ok := strings.CutPrefix(script, "after "); ok { // the time after which it exits with 0
		if d, err := time.ParseDuration(after); err == nil {
			return process{after: d, termCode: 143}
		}
	}
	return process{runs: true, termCode: 143} // as a program without a handler
}
