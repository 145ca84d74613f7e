// Package process runs commands in containers, and connects clients to their processes, ports and files. It must not start or stop
// containers.
//
// Goroutines: each command has one that waits for its end; Wait waits for them when the runtime is closed.
package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/record"
)

const (
	// execDrain is how long Exec waits for remaining output after the end of a command. Its background processes may hold the
	// output open forever.
	execDrain = 500 * time.Millisecond
	// endTimeout bounds the clean-up after a command.
	endTimeout = 30 * time.Second
	// execStart bounds the start of a command by runc, on a machine that may be busy.
	execStart = 30 * time.Second
)

// command is an exec'd process. The FIFO for its output also shows it to the next agent.
type command struct {
	container, id string
	Pid           int
	Fifo          string
	Out           *os.File
}

// Processes runs commands in containers, and connects clients to containers and pods.
type Processes struct {
	Client  *client.Client
	Records *record.Store
	Index   *record.Index
	Dirs    layout.Dirs
	Logs    *logs.Collector
	// WithNamespace adds the containerd namespace to a context.
	WithNamespace func(context.Context) context.Context
	Log           *slog.Logger

	Commands commands
}

// Exec implements runner.Runtime.
func (r *Processes) Exec(ctx context.Context, key manifests.Key, q runner.ExecRequest) (runner.ExecResult, error) {
	rec := r.Records.Find(key, runner.Action{ContainerID: q.ContainerID})
	if rec == nil || q.ContainerID == "" {
		return runner.ExecResult{}, fmt.Errorf("container %q of pod %s does not exist", q.ContainerID, key)
	}
	c, err := r.StartCommand(r.WithNamespace(ctx), rec, q.Command)
	if err != nil {
		return runner.ExecResult{}, err
	}
	output := make(chan []byte, 1)
	go func() { output <- readUpTo(c.Out, q.Limit) }()
	code, err := r.awaitCommand(r.WithNamespace(ctx), c, q.Timeout)
	_ = c.Out.SetReadDeadline(time.Now().Add(execDrain))
	result := runner.ExecResult{ExitCode: code, Output: <-output}
	r.endCommand(r.WithNamespace(ctx), c)
	return result, err
}

// StartCommand starts a command. If it fails, it removes all of it.
func (r *Processes) StartCommand(ctx context.Context, rec *record.Container, args []string) (*command, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	process, err := r.processOf(ctx, rec.ID)
	if err != nil {
		return nil, err
	}
	process.Args, process.Terminal, process.ConsoleSize = args, false, nil
	spec, err := typeurl.MarshalAny(process)
	if err != nil {
		return nil, err
	}
	c := &command{container: rec.ID, id: "exec-" + record.NewID()[:16]}
	c.Fifo = r.Dirs.Path("exec", c.container+"."+c.id)
	if err := c.openOutput(); err != nil {
		return nil, fmt.Errorf("output of command: %w", err)
	}
	made, err := r.startProcess(ctx, &c.Pid, &tasksapi.ExecProcessRequest{
		ContainerID: c.container, ExecID: c.id, Stdout: c.Fifo, Stderr: c.Fifo, Spec: typeurl.MarshalProto(spec),
	})
	switch {
	case err == nil:
		return c, nil
	case made:
		r.endCommand(ctx, c)
	default:
		c.close()
	}
	return nil, fmt.Errorf("exec: %w", err)
}

// startProcess creates and starts a process in a container, and stores its pid. After an error, made reports whether there is
// something to remove.
func (r *Processes) startProcess(ctx context.Context, pid *int, req *tasksapi.ExecProcessRequest) (made bool, err error) {
	// It must not be interrupted: after that it would be unknown whether the process exists.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), execStart)
	defer cancel()
	if _, err := r.Client.TaskService().Exec(ctx, req); err != nil {
		return false, errgrpc.ToNative(err)
	}
	resp, err := r.Client.TaskService().Start(ctx, &tasksapi.StartRequest{ContainerID: req.ContainerID, ExecID: req.ExecID})
	if err != nil {
		return true, errgrpc.ToNative(err)
	}
	*pid = int(resp.Pid)
	return true, nil
}

// processOf returns the container's own process from its record.
func (r *Processes) processOf(ctx context.Context, id string) (*specs.Process, error) {
	s, err := r.Records.SpecOf(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.Process, nil
}

// openOutput creates the FIFO. Its reading end is open before the process writes, so that no output blocks or is lost.
func (c *command) openOutput() error {
	if err := os.MkdirAll(filepath.Dir(c.Fifo), 0o700); err != nil {
		return err
	}
	if err := unix.Mkfifo(c.Fifo, 0o600); err != nil {
		return err
	}
	out, err := os.OpenFile(c.Fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = os.Remove(c.Fifo)
		return err
	}
	c.Out = out
	return nil
}

func (c *command) close() {
	_ = c.Out.Close()
	_ = os.Remove(c.Fifo)
}

// readUpTo reads to the end, or the deadline, and keeps the first limit bytes.
func readUpTo(f io.Reader, limit int) []byte {
	kept, _ := io.ReadAll(io.LimitReader(f, int64(limit)))
	_, _ = io.Copy(io.Discard, f)
	return kept
}

// awaitCommand waits for the end of the process; it is killed after the timeout, or when ctx ends. A single call of Wait covers
// its whole life, because the protocol of the shim may lose the result of a call that is cancelled.
func (r *Processes) awaitCommand(ctx context.Context, c *command, timeout time.Duration) (code int, err error) {
	e := r.awaitExit(ctx, c)
	defer e.cancel()
	var over <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		over = timer.C
	}
	var cause error
	select {
	case <-e.seen:
		if e.err == nil {
			return e.code, nil
		}
		cause = e.err
	case <-over:
		cause = fmt.Errorf("%w after %s", runner.ErrExecTimeout, timeout)
	case <-ctx.Done():
		cause = ctx.Err()
	}
	r.endByForce(ctx, c, e)
	return 0, cause
}

// exit is the end of a process: code and err are valid once seen is closed. cancel stops waiting.
type exit struct {
	cancel context.CancelFunc
	seen   chan struct{}
	code   int
	err    error
}

// awaitExit waits for the end of a process in the background, also after ctx has ended.
func (r *Processes) awaitExit(ctx context.Context, c *command) *exit {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e := &exit{cancel: cancel, seen: make(chan struct{})}
	go func() {
		defer close(e.seen)
		resp, err := r.Client.TaskService().Wait(ctx, &tasksapi.WaitRequest{ContainerID: c.container, ExecID: c.id})
		if err != nil {
			e.err = fmt.Errorf("wait for command: %w", errgrpc.ToNative(err))
			return
		}
		e.code = int(resp.ExitStatus)
	}()
	return e
}

// endByForce kills a process and waits for its end.
func (r *Processes) endByForce(ctx context.Context, c *command, e *exit) {
	r.killCommand(context.WithoutCancel(ctx), c)
	unkillable := time.AfterFunc(endTimeout, e.cancel)
	defer unkillable.Stop()
	<-e.seen
}

// killCommand kills the process and the rest of its process group.
func (r *Processes) killCommand(ctx context.Context, c *command) {
	// Kernels before 6.9 cannot signal a process group by pidfd.
	if SignalPid(c.Pid, c.container, unix.SIGKILL, unix.PIDFD_SIGNAL_PROCESS_GROUP) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := r.Client.TaskService().Kill(ctx, &tasksapi.KillRequest{
		ContainerID: c.container, ExecID: c.id, Signal: uint32(unix.SIGKILL),
	})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) {
		r.Log.Debug("kill command", "container", c.container, "err", err)
	}
}

// endCommand deletes the process and its files. If background processes hold the output open, the shim takes long, and endCommand
// returns before it is done.
func (r *Processes) endCommand(ctx context.Context, c *command) {
	r.endSoon(ctx, func(ctx context.Context) {
		r.deleteCommand(ctx, c)
		c.close()
	})
}

// deleteCommand deletes an ended process, and reports whether it is gone.
func (r *Processes) deleteCommand(ctx context.Context, c *command) bool {
	_, err := r.Client.TaskService().DeleteProcess(ctx, &tasksapi.DeleteProcessRequest{ContainerID: c.container, ExecID: c.id})
	if err = fault.IgnoreNotFound(errgrpc.ToNative(err)); err != nil && r.Index.Container(c.container) != nil {
		r.Log.Debug("delete command", "container", c.container, "err", err)
		return false
	}
	return true
}

// endSoon runs a clean-up in the background, and waits briefly for it.
func (r *Processes) endSoon(ctx context.Context, do func(context.Context)) {
	ended := make(chan struct{})
	r.Commands.wg.Go(func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		do(ctx)
	})
	timer := time.NewTimer(execDrain)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// commands are the commands that are being cleaned up in the background, and those that a previous agent left.
type commands struct {
	wg sync.WaitGroup
	// mu guards closed; no session starts after it is set.
	mu     sync.Mutex
	closed bool
	// Left are the names of FIFOs found at startup.
	Left []string
}

// begin counts a session, which ends with wg.Done.
func (c *commands) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("exec: %w", os.ErrClosed)
	}
	c.wg.Add(1)
	return nil
}

// Wait waits for the commands that are being cleaned up, except those that hold on to their output, which the next agent cleans
// up.
func (c *commands) Wait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(execDrain)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// CleanCommands kills the commands that a previous agent started and did not wait for.
func (r *Processes) CleanCommands(ctx context.Context) {
	for _, name := range r.Commands.Left {
		container, id, _ := strings.Cut(name, ".")
		if r.Index.Container(container) != nil {
			r.discardCommand(ctx, container, id)
		}
		if ctx.Err() != nil {
			return
		}
		_ = os.RemoveAll(r.Dirs.Path("exec", name))
	}
}

func (r *Processes) discardCommand(ctx context.Context, container, id string) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	defer swallow(r.Dirs.Path("exec", container+"."+id))()
	tasks := r.Client.TaskService()
	p, err := tasks.Get(ctx, &tasksapi.GetRequest{ContainerID: container, ExecID: id})
	if err == nil && p.Process.Status == task.Status_RUNNING {
		signalSession(int(p.Process.Pid), container, unix.SIGKILL)
		r.killCommand(ctx, &command{container: container, id: id, Pid: int(p.Process.Pid)})
		_, _ = tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: container, ExecID: id})
	}
	_, err = tasks.DeleteProcess(ctx, &tasksapi.DeleteProcessRequest{ContainerID: container, ExecID: id})
	if err = fault.IgnoreNotFound(errgrpc.ToNative(err)); err != nil {
		r.Log.Debug("delete command of an earlier agent", "container", container, "err", err)
	}
}
