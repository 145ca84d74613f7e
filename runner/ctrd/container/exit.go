package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/containerd/containerd/api/types/task"
	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
	"monopod/internal/regular"
	"monopod/runner"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/shim"
)

// exitUnknown is the exit code of a process whose exit was not observed.
const exitUnknown = 255

// ObserveContainer returns the state of a container; nil if it was never started and has no task.
func (r *Lifecycle) ObserveContainer(ctx context.Context, rec *record.Container) (*runner.Container, error) {
	l := &rec.Meta
	c := &runner.Container{
		ID:        rec.ID,
		Name:      l.Name,
		SandboxID: l.SandboxID,
		Hash:      l.Hash,

		ResourcesHash: l.ResourcesHash,
		Resources:     l.Resources,
		PodResources:  l.PodResources,

		Image:        rec.Image,
		ImageID:      l.ImageID,
		ImageDigest:  l.Image,
		VolumeImages: l.VolumeImages,
		RestartCount: l.RestartCount,
		BackOff:      l.BackOff,
		Last:         l.Last,
		CreatedAt:    rec.CreatedAt,
		EarlierBoot:  l.BootID != "" && l.BootID != r.BootID,
		StartedAt:    l.StartedAt,
		StopSentAt:   l.StopSentAt,
		StoppingAt:   l.StoppingAt,
		StopCause:    l.StopCause,
		PostStart:    l.PostStart,
		Round:        l.Round,
		Health:       l.Health,
	}
	if l.Exit != nil {
		c.State, c.Exit, c.Recorded = runner.ContainerExited, l.Exit, true
		return c, nil
	}
	t, err := r.Records.Task(ctx, rec.ID)
	if err != nil {
		return nil, err
	}
	switch status := record.StatusOf(t); status {
	case task.Status_RUNNING, task.Status_PAUSED, task.Status_PAUSING:
		c.State, c.PID = runner.ContainerRunning, t.Pid
	case task.Status_CREATED:
		c.State, c.PID, c.StartedAt = runner.ContainerCreated, t.Pid, time.Time{}
	case record.NoTask, task.Status_STOPPED:
		if l.StartedAt.IsZero() {
			return nil, nil
		}
		c.State = runner.ContainerExited
		c.Exit, err = r.exitOf(ctx, rec, t)
	default:
		return nil, fmt.Errorf("containerd does not know the state of its task (%s)", status)
	}
	return c, err
}

// exitOf returns how a container ended: from the shim's record, which includes OOM kills, else from the task, else unknown.
func (r *Lifecycle) exitOf(ctx context.Context, rec *record.Container, t *task.Process) (*runner.Termination, error) {
	x := &runner.Termination{ContainerID: rec.ID, StartedAt: rec.Meta.StartedAt}
	f, err := shim.ReadExitRecord(r.Dirs.ExitFile(rec.ID))
	switch {
	case err == nil:
		x.ExitCode, x.FinishedAt, x.Reason = f.ExitCode, f.ExitedAt, exitReason(f.ExitCode, f.OOMKilled)
	case t != nil:
		x.ExitCode, x.FinishedAt = int(t.ExitStatus), t.ExitedAt.AsTime()
		x.Reason = exitReason(x.ExitCode, false)
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, atomicfile.ErrDamaged):
		return nil, err // a retry may succeed
	default:
		x.ExitCode, x.Reason, x.FinishedAt = exitUnknown, runner.ReasonUnknown, r.Records.LostAt(rec)
	}
	x.Message = r.terminationMessage(ctx, rec, x)
	return x, nil
}

func exitReason(code int, oom bool) string {
	switch {
	case oom:
		return runner.ReasonOOMKilled
	case code == 0:
		return runner.ReasonCompleted
	}
	return runner.ReasonError
}

// Limits of a message from the log (terminationMessagePolicy FallbackToLogsOnError).
const (
	logMessageLines = 80
	logMessageBytes = 2048
)

// terminationMessage reads the container's message, or the end of its log if the policy requires it. An unreadable message counts
// as empty: it must not hide the exit.
func (r *Lifecycle) terminationMessage(ctx context.Context, rec *record.Container, x *runner.Termination) string {
	l := &rec.Meta
	if l.MessagePath != "" {
		msg := readTail(l.MessagePath, l.MessageLimit)
		if msg == "" {
			msg = readTail(r.Dirs.MessageCopy(l.UID, rec.ID), l.MessageLimit) // it ended before a reboot
		}
		if msg != "" {
			return msg
		}
	}
	if !l.MessageFromLogs || x.ExitCode == 0 {
		return ""
	}
	limit := min(logMessageBytes, l.MessageLimit)
	b := tailBuffer{limit: limit + utf8.UTFMax} // one rune more, because the cut may split one
	err := logs.Read(ctx, l.LogPath, logs.ReadOptions{Tail: logMessageLines}, &b, &b)
	if err != nil {
		return ""
	}
	return record.LastBytes(string(b.end()), limit)
}

// tailBuffer keeps the end of what is written to it: one line of a container can be as long as its log.
type tailBuffer struct {
	limit int
	text  []byte
}

// Write implements io.Writer.
func (b *tailBuffer) Write(p []byte) (int, error) {
	b.text = append(b.text, p[max(0, len(p)-b.limit):]...)
	if over := len(b.text) - b.limit; over > b.limit { // rarely, because it copies
		b.text = append(b.text[:0], b.text[over:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) end() []byte { return b.text[max(0, len(b.text)-b.limit):] }

// readTail returns the last n bytes of a file; none if it cannot be read. The container controls the file, so only a regular one
// is opened.
func readTail(path string, n int) string {
	if path == "" || n <= 0 {
		return ""
	}
	f, fi, err := regular.Open(path, unix.O_NOFOLLOW)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if off := fi.Size() - int64(n); off > 0 {
		if _, err := f.Seek(off, io.SeekStart); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(n)))
	if err != nil {
		return ""
	}
	return record.LastBytes(string(b), n)
}
