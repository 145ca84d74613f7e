package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"monopod/internal/streams"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/record"
)

const (
	// StreamQuiet is how long the output of an ended process must be silent to count as complete: its background processes may
	// hold it open forever.
	StreamQuiet = 3 * time.Second
	// streamRest is more than what can be in flight when a process ends: the largest pipe, the buffer of the shim, a FIFO.
	streamRest = 2 << 20
	// streamChunk is the buffer for one direction of a stream.
	streamChunk = 16 << 10
	// hangupGrace is how long a process may run after its terminal was hung up.
	hangupGrace = time.Second
	// ExitKilled is the exit code of a killed process.
	ExitKilled = 128 + int(unix.SIGKILL)
)

// ErrGone reports that the client of a process has disconnected.
var ErrGone = errors.New("the client has disconnected")

// session is an exec'd process with streams of its own: FIFOs in a directory, which also shows it to the next agent.
type session struct {
	command
	dir string
	tty bool
	// errOut is the standard error; nil with a terminal.
	errOut *os.File
	// ended is set once the process has ended.
	ended atomic.Bool
}

// Stream runs a command in a running container, connected to s, and returns its exit code. When ctx ends, all processes of its
// session are killed. Stream returns when all output has been copied.
func (r *Processes) Stream(ctx context.Context, key manifests.Key, id string, args []string, s streams.Streams) (code int, err error) {
	rec := r.Records.Find(key, runner.Action{ContainerID: id})
	if rec == nil || id == "" {
		return 0, fmt.Errorf("container %q of pod %s does not exist", id, key)
	}
	if err := r.Commands.begin(); err != nil {
		return 0, err
	}
	defer r.Commands.wg.Done()
	ctx, lost := context.WithCancelCause(r.WithNamespace(ctx))
	defer lost(nil)
	c, err := r.StartSession(ctx, rec, args, s)
	if err != nil {
		return 0, err
	}
	defer r.endSession(ctx, c)
	if s.Stdin != nil {
		go r.feed(ctx, c, s.Stdin)
	}
	var resizing sync.WaitGroup
	defer resizing.Wait()
	if s.TTY && s.Resize != nil {
		resized, stop := context.WithCancel(ctx)
		defer stop()
		resizing.Go(func() { r.resize(resized, c, s.Resize) })
	}
	var out errgroup.Group
	out.Go(func() error { return c.copyOut(c.Out, s.Stdout, lost) })
	if c.errOut != nil {
		out.Go(func() error { return c.copyOut(c.errOut, s.Stderr, lost) })
	}
	code, err = r.awaitSession(ctx, c)
	c.drain()
	copied := out.Wait()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrGone):
		return 0, fmt.Errorf("%w: %w", cause, copied)
	case err != nil && ctx.Err() == nil && !r.runs(ctx, rec.ID):
		return ExitKilled, nil // killed with its container, and its shim ended before it could report the exit
	}
	return code, err
}

// StartSession starts a command. If it fails, it removes all of it.
func (r *Processes) StartSession(ctx context.Context, rec *record.Container, args []string, s streams.Streams) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	process, err := r.sessionSpec(ctx, rec.ID, args, s.TTY)
	if err != nil {
		return nil, err
	}
	c := &session{command: command{container: rec.ID, id: "exec-" + record.NewID()[:16]}, tty: s.TTY}
	c.dir = r.Dirs.Path("exec", c.container+"."+c.id)
	req := &tasksapi.ExecProcessRequest{ContainerID: c.container, ExecID: c.id, Terminal: s.TTY, Spec: process}
	if err := c.makeFIFOs(req, s.Stdin != nil); err != nil {
		c.remove()
		return nil, fmt.Errorf("streams of command: %w", err)
	}
	made, err := r.startProcess(ctx, &c.Pid, req)
	switch {
	case err == nil:
		return c, nil
	case made:
		r.endSession(ctx, c)
	default:
		c.remove()
	}
	return nil, fmt.Errorf("exec: %w", err)
}

// sessionSpec returns the container's own process with other arguments, with or without a terminal.
func (r *Processes) sessionSpec(ctx context.Context, id string, args []string, tty bool) (*anypb.Any, error) {
	p, err := r.processOf(ctx, id)
	if err != nil {
		return nil, err
	}
	p.Args, p.Terminal, p.ConsoleSize = args, tty, nil
	if tty && !hasTerm(p) {
		p.Env = append(p.Env, "TERM=xterm")
	}
	return typeurl.MarshalAnyToProto(p)
}

func hasTerm(p *specs.Process) bool {
	for _, e := range p.Env {
		if strings.HasPrefix(e, "TERM=") {
			return true
		}
	}
	return false
}

// makeFIFOs creates the FIFOs of the process. The reading ends of its output are open before it writes.
func (c *session) makeFIFOs(req *tasksapi.ExecProcessRequest, stdin bool) (err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	mkfifo := func(name string) (string, error) {
		path := filepath.Join(c.dir, name)
		return path, unix.Mkfifo(path, 0o600)
	}
	if stdin {
		if req.Stdin, err = mkfifo("stdin"); err != nil {
			return err
		}
	}
	if req.Stdout, err = mkfifo("stdout"); err != nil {
		return err
	}
	if c.Out, err = os.OpenFile(req.Stdout, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil || c.tty {
		return err
	}
	if req.Stderr, err = mkfifo("stderr"); err != nil {
		return err
	}
	c.errOut, err = os.OpenFile(req.Stderr, os.O_RDONLY|unix.O_NONBLOCK, 0)
	return err
}

func (c *session) outputs() []*os.File {
	var all []*os.File
	for _, f := range []*os.File{c.Out, c.errOut} {
		if f != nil {
			all = append(all, f)
		}
	}
	return all
}

func (c *session) CloseOutputs() {
	for _, f := range c.outputs() {
		_ = f.Close()
	}
}

// remove closes and removes the FIFOs of a process that was not started.
func (c *session) remove() {
	c.CloseOutputs()
	_ = os.RemoveAll(c.dir)
}

// copyOut copies one output to its end. It calls lost when the client has disconnected.
func (c *session) copyOut(f *os.File, to io.Writer, lost func(error)) error {
	if to == nil {
		to = io.Discard
	}
	buf := make([]byte, streamChunk)
	for rest := streamRest; rest > 0; {
		if c.ended.Load() {
			_ = f.SetReadDeadline(time.Now().Add(StreamQuiet))
		}
		n, err := f.Read(buf)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				lost(ErrGone)
				return werr
			}
		}
		if c.ended.Load() {
			rest -= n
		}
		if err != nil { // the end, or silence
			return nil
		}
	}
	return nil
}

// drain limits reading to what the ended process has written.
func (c *session) drain() {
	c.ended.Store(true)
	for _, f := range c.outputs() {
		_ = f.SetReadDeadline(time.Now().Add(StreamQuiet))
	}
}

// feed copies to the standard input until one side ends, and then closes it.
func (r *Processes) feed(ctx context.Context, c *session, from io.Reader) {
	path := filepath.Join(c.dir, "stdin")
	f, err := openWriter(ctx, path)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	_, _ = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{from}, make([]byte, streamChunk))
	_ = f.Close()
	if c.tty { // whose end of input is a character
		return
	}
	r.closeInput(ctx, c.container, c.id)
}

// closeInput makes the shim close a standard input. exec is empty for that of the container itself.
func (r *Processes) closeInput(ctx context.Context, container, exec string) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := r.Client.TaskService().CloseIO(ctx, &tasksapi.CloseIORequest{ContainerID: container, ExecID: exec, Stdin: true})
	if err = fault.IgnoreNotFound(errgrpc.ToNative(err)); err != nil && ctx.Err() == nil {
		r.Log.Debug("close standard input", "container", container, "err", err)
	}
}

// openWriter opens a FIFO for writing once it has a reader, such as the shim, or ctx ends.
func openWriter(ctx context.Context, path string) (*os.File, error) {
	place, err := os.OpenFile(path, unix.O_PATH, 0) // stays valid when the path is removed
	if err != nil {
		return nil, err
	}
	opened := make(chan struct{})
	released := make(chan struct{})
	path = fmt.Sprintf("/proc/self/fd/%d", place.Fd())
	stop := context.AfterFunc(ctx, func() {
		defer close(released)
		if reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			<-opened // which a reader unblocks
			_ = reader.Close()
		}
	})
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	close(opened)
	if !stop() {
		<-released
	}
	_ = place.Close()
	if err == nil && ctx.Err() != nil {
		_ = f.Close()
		err = ctx.Err()
	}
	return f, err
}

// resize forwards the sizes of the terminal.
func (r *Processes) resize(ctx context.Context, c *session, sizes <-chan streams.Size) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, open := <-sizes:
			if !open {
				return
			}
			r.resizeTo(ctx, c.container, c.id, size)
		}
	}
}

func (r *Processes) resizeTo(ctx context.Context, container, exec string, size streams.Size) {
	if size.Width == 0 || size.Height == 0 {
		return
	}
	_, err := r.Client.TaskService().ResizePty(ctx, &tasksapi.ResizePtyRequest{
		ContainerID: container, ExecID: exec, Width: uint32(size.Width), Height: uint32(size.Height),
	})
	if err != nil && ctx.Err() == nil {
		r.Log.Debug("resize terminal", "container", container, "err", errgrpc.ToNative(err))
	}
}

// awaitSession waits for the end of the process, which is killed when ctx ends.
func (r *Processes) awaitSession(ctx context.Context, c *session) (code int, err error) {
	e := r.awaitExit(ctx, &c.command)
	defer e.cancel()
	select {
	case <-e.seen:
		return e.code, e.err
	case <-ctx.Done():
	}
	if c.tty { // as a closed terminal does: shells then save their history
		signalSession(c.Pid, c.container, unix.SIGHUP)
		timer := time.NewTimer(hangupGrace)
		defer timer.Stop()
		select {
		case <-e.seen:
		case <-timer.C:
		}
	}
	signalSession(c.Pid, c.container, unix.SIGKILL)
	r.endByForce(ctx, &c.command, e)
	return 0, context.Cause(ctx)
}

// endSession deletes the process and its files, as endCommand does. The next agent retries what fails.
func (r *Processes) endSession(ctx context.Context, c *session) {
	r.endSoon(ctx, func(ctx context.Context) {
		var rest sync.WaitGroup
		for _, f := range c.outputs() { // the shim waits until all of it is read
			_ = f.SetReadDeadline(time.Time{})
			rest.Go(func() { _, _ = io.Copy(io.Discard, f) })
		}
		deleted := r.deleteCommand(ctx, &c.command)
		c.CloseOutputs()
		rest.Wait()
		if deleted {
			_ = os.RemoveAll(c.dir)
		}
	})
}

// swallow discards what the processes of an earlier agent's session still write, until the returned function is called. Otherwise
// the shim would wait for a reader.
func swallow(dir string) func() {
	var reading sync.WaitGroup
	c := session{}
	for name, f := range map[string]**os.File{"stdout": &c.Out, "stderr": &c.errOut} {
		var err error
		if *f, err = os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0); err != nil {
			*f = nil
			continue
		}
		reading.Go(func() { _, _ = io.Copy(io.Discard, *f) })
	}
	return func() { c.CloseOutputs(); reading.Wait() }
}

// runs reports whether the process of a container runs, or may run.
func (r *Processes) runs(ctx context.Context, id string) bool {
	t, err := r.Records.Task(ctx, id)
	return err != nil || record.StatusOf(t) == task.Status_RUNNING
}
