package runner

import (
	"errors"
	"time"
)

// ExecRequest is a command to run in a container beside its own process.
type ExecRequest struct {
	// ContainerID is the instance; it must be running.
	ContainerID string
	// Command is the program and its arguments. No shell is involved.
	Command []string
	// Timeout ends the process, counted from its start, not from the call. 0: none but the context's.
	Timeout time.Duration
	// Limit is how many bytes of output are kept, the first ones; the process is never held up by the rest.
	Limit int
}

// ExecResult is how a command ended.
type ExecResult struct {
	ExitCode int
	// Output is the beginning of standard output and standard error, in the order they came.
	Output []byte
}

// ErrExecTimeout is the error of an Exec whose process was killed because its time was over.
var ErrExecTimeout = errors.New("command timed out")
