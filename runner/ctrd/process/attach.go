package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"monopod/internal/streams"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/record"
)

// Attach connects s to the process of a running container, from the current position of its output, until the container, ctx or
// the standard input of s ends. With stdinOnce the end of the input is passed on. A container without standard input ignores that
// of s.
func (r *Processes) Attach(ctx context.Context, key manifests.Key, id string, s streams.Streams) error {
	rec := r.Records.Find(key, runner.Action{ContainerID: id})
	if rec == nil || id == "" {
		return fmt.Errorf("container %q of pod %s does not exist", id, key)
	}
	if err := r.Commands.begin(); err != nil {
		return err
	}
	defer r.Commands.wg.Done()
	ctx, leave := context.WithCancelCause(r.WithNamespace(ctx))
	defer leave(nil)
	tap, err := r.Logs.Tap(id)
	if err != nil {
		return err
	}
	defer tap.Close()
	if s.Stdin != nil {
		if err := r.attachInput(ctx, key, rec, s, leave); err != nil {
			return err
		}
	}
	if s.TTY && s.Resize != nil {
		go r.resize(ctx, &session{command: command{container: id}}, s.Resize)
	}
	err = tap.Copy(ctx, s.Stdout, s.Stderr)
	if errors.Is(context.Cause(ctx), errDetached) {
		return nil
	}
	return err
}

// errDetached is the result of an attachment whose input has ended.
var errDetached = errors.New("detached")

// attachInput copies to the standard input of a container that has one, in the background.
func (r *Processes) attachInput(ctx context.Context, key manifests.Key, rec *record.Container, s streams.Streams, leave func(error)) error {
	once := false
	if sb := r.Index.Sandbox(key); sb != nil && sb.Pod != nil {
		c := manifests.FindContainer(&manifests.WithEphemeral(sb.Pod, sb.Ephemeral).Object.Spec, rec.Meta.Name)
		once = c != nil && c.StdinOnce && !c.TTY
	}
	f, err := os.OpenFile(r.Dirs.Path("logs", rec.ID, "stdin"), os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("the standard input of container %s is closed", rec.Meta.Name)
	case err != nil:
		return fmt.Errorf("standard input: %w", err)
	}
	go func() {
		stop := context.AfterFunc(ctx, func() { _ = f.Close() })
		defer stop()
		_, _ = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{s.Stdin}, make([]byte, streamChunk))
		_ = f.Close()
		if once { // the output is copied until the container ends
			r.closeInput(ctx, rec.ID, "")
			return
		}
		leave(errDetached)
	}()
	return nil
}
