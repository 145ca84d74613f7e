package runtimetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"monopod/manifests"
	"monopod/runner"
)

// Scripts that tests run in containers with Exec, `sh -c SCRIPT`. A real shell runs them, the fake knows them by heart.
const (
	// ExecSucceed prints "out" and "err", the latter on standard error, and exits with 0.
	ExecSucceed = "echo out; echo err >&2"
	// ExecFail prints "no" and exits with 3.
	ExecFail = "echo no; exit 3"
	// ExecFlood prints 200000 times x.
	ExecFlood = "head -c 200000 /dev/zero | tr '\\0' x"
	// ExecHang prints "begun" and runs for a long time.
	ExecHang = "echo begun; sleep 1000; echo over"
	// ExecLeave leaves a process in the background that holds the output open.
	ExecLeave = "sleep 3 & echo left"
)

// Executed is one call of Exec.
type Executed struct {
	Key       manifests.Key
	Container string
	Command   []string
}

// Exec implements runner.Runtime. What is not in the list of scripts is answered by OnExec, or exits with 0.
func (f *Fake) Exec(ctx context.Context, key manifests.Key, r runner.ExecRequest) (runner.ExecResult, error) {
	if err := ctx.Err(); err != nil {
		return runner.ExecResult{}, err
	}
	name, gone, err := f.beginExec(key, r)
	if err != nil {
		return runner.ExecResult{}, err
	}
	result := runner.ExecResult{}
	switch script := last(r.Command); {
	case r.Command[0] == MissingCommand:
		return result, fmt.Errorf("exec: %q: no such file or directory", MissingCommand)
	case f.OnExec != nil:
		result, err = f.OnExec(ctx, key, name, r)
	case script == ExecSucceed:
		result.Output = []byte("out\nerr\n")
	case script == ExecFail:
		result.ExitCode, result.Output = 3, []byte("no\n")
	case script == ExecFlood:
		result.Output = bytes.Repeat([]byte("x"), 200000)
	case script == ExecLeave:
		result.Output = []byte("left\n")
	case script == ExecHang:
		result.Output = []byte("begun\n")
		result.ExitCode, err = f.hang(ctx, r.Timeout, gone)
	}
	result.Output = result.Output[:min(len(result.Output), r.Limit)]
	return result, err
}

func last(command []string) string { return command[len(command)-1] }

// beginExec finds the container and notes the call.
func (f *Fake) beginExec(key manifests.Key, r runner.ExecRequest) (container string, gone chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return "", nil, ErrDead
	}
	p, ok := f.pods[key]
	if !ok {
		return "", nil, fmt.Errorf("there is no pod %s", key)
	}
	i := slices.IndexFunc(p.containers, func(c *fakeContainer) bool { return c.ID == r.ContainerID })
	if i < 0 || p.containers[i].State != runner.ContainerRunning {
		return "", nil, fmt.Errorf("container %q does not run", r.ContainerID)
	}
	name := p.containers[i].Name
	if p.containers[i].gone == nil {
		p.containers[i].gone = make(chan struct{})
	}
	f.executed = append(f.executed, Executed{Key: key, Container: name, Command: slices.Clone(r.Command)})
	return name, p.containers[i].gone, nil
}

// hang is a process that does not end by itself.
func (f *Fake) hang(ctx context.Context, timeout time.Duration, gone <-chan struct{}) (code int, err error) {
	var over <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return 0, fmt.Errorf("%w after %s", runner.ErrExecTimeout, timeout)
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-gone:
		return 137, nil
	case <-f.died:
		return 0, ErrDead
	}
}

// Executed returns the calls of Exec that ran, as "container: command" words.
func (m *Machine) Executed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, e := range m.executed {
		all = append(all, e.Container+": "+strings.Join(e.Command, " "))
	}
	return all
}
