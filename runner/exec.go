package runner

import (
	"errors"
	"time"
)

// ExecRequest is a command to run in a running container, in addition to its own process.
type ExecRequest struct {
	// ContainerID is the instance; it must be running.
	ContainerID string
	// Command is the program and its arguments. It is not run in a shell.
	Command []string
	// Timeout kills the process. It counts from the start of the process, not from the call; 0 means that only the context limits it.
	Timeout time.Duration
	// Limit is the number of bytes of output to keep, from the beginning. The process is never blocked by further output.
	Limit int
}

// ExecResult is the result of a command.
type ExecResult struct {
	ExitCode int
	// Output is the beginning of standard output and standard error, in the order of writing.
	Output []byte
}

// ErrExecTimeout is the error of an Exec whose process was killed because its timeout expired.
var ErrExecTimeout = errors.New("command timed out")
