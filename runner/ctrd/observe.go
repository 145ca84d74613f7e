package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"monopod/internal/atomicfile"
	"monopod/internal/boottime"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/shim"
)

// exitUnknown is the exit code of a process whose end nobody saw.
const exitUnknown = 255

// decodeContainer reads a record of the container store.
func decodeContainer(c containers.Container) (*containerRecord, error) {
	l, err := decodeContainerLabels(c.Labels)
	return &containerRecord{ID: c.ID, CreatedAt: c.CreatedAt, Image: c.Image, Labels: *l}, wrap("container "+c.ID, err)
}

// Observe implements runner.Runtime. It asks containerd for the sandbox record and for each task that may exist;
// the rest comes from the index.
//
// A container without a task that was never started is left over from a cut-off CreateContainer: it is not
// reported, and removed in the background.
func (r *Runtime) Observe(ctx context.Context, key manifests.Key) (runner.PodState, error) {
	ctx = r.ns(ctx)
	var st runner.PodState
	if rec := r.index.sandbox(key); rec != nil {
		// The index has all of it. Asking all the same shows that containerd is there.
		if _, err := r.client.SandboxStore().Get(ctx, rec.ID); err != nil {
			if !errdefs.IsNotFound(err) {
				return runner.PodState{}, fmt.Errorf("sandbox %s: %w", rec.ID, err)
			}
			r.index.deleteSandbox(rec.ID)
		} else {
			st.Sandbox = r.observeSandbox(rec)
		}
	}
	if rec := r.index.place(key); st.Sandbox == nil && rec != nil {
		st.Place = rec.Pod
	}
	for _, rec := range r.index.ofPod(key) {
		c, err := r.observeContainer(ctx, rec)
		if err != nil {
			return runner.PodState{}, fmt.Errorf("container %s: %w", rec.Labels.Name, err)
		}
		if c == nil {
			r.teardown.discard(rec.ID)
			continue
		}
		st.Containers = append(st.Containers, *c)
	}
	return st, nil
}

func (r *Runtime) observeSandbox(rec *sandboxRecord) *runner.Sandbox {
	s := &runner.Sandbox{
		ID:   rec.ID,
		UID:  rec.Labels.UID,
		Hash: rec.Labels.Hash,

		QOSClass: rec.Labels.QOSClass, ResourcesHash: rec.Labels.ResourcesHash,

		Pod:       rec.Pod,
		CreatedAt: rec.CreatedAt,
		Alive:     r.alive(rec),
		Network:   runner.NetworkPending,
		IPs:       rec.Network.IPs,
	}
	if rec.Network.Ready {
		s.Network = runner.NetworkReady
	}
	if rec.Pod.Object.Spec.ActiveDeadlineSeconds != nil && rec.Labels.BootID == r.bootID {
		s.Age = max(0, boottime.Since()-rec.Labels.Born)
	}
	if rec.Labels.Failed != "" {
		s.Failed = &runner.PodFailure{Reason: rec.Labels.Failed, Message: rec.Labels.FailedMessage, Cause: rec.Labels.FailedCause, At: rec.Labels.FailedAt}
	}
	s.Evictions, s.Disk = rec.Labels.Evictions, r.usage.of(rec.ID)
	return s
}

// alive says that the sandbox was made in this boot and all it shares is in place.
func (r *Runtime) alive(rec *sandboxRecord) bool {
	return rec.Labels.BootID == r.bootID &&
		network.Pinned(r.nsDir(rec.ID), namespacesOf(rec.Pod.Object)) &&
		(rec.Labels.FirstID == 0 || network.Pinned(r.nsDir(rec.ID), network.Namespaces{Users: &network.Users{}})) &&
		(!sharesProcesses(rec.Pod.Object) || r.pauseAlive(rec.ID)) &&
		(rec.Pod.Object.Spec.HostIPC || isMountPoint(r.shmDir(rec.ID)))
}

// observeContainer returns nil for a container that never was started and has no task.
func (r *Runtime) observeContainer(ctx context.Context, rec *containerRecord) (*runner.Container, error) {
	l := &rec.Labels
	c := &runner.Container{
		ID:        rec.ID,
		Name:      l.Name,
		SandboxID: l.SandboxID,
		Hash:      l.Hash,

		ResourcesHash: l.ResourcesHash,
		Resources:     l.Resources,

		Image:        rec.Image,
		ImageID:      l.ImageID,
		ImageDigest:  l.Image,
		VolumeImages: l.VolumeImages,
		RestartCount: l.RestartCount,
		BackOff:      l.BackOff,
		Last:         l.Last,
		CreatedAt:    rec.CreatedAt,
		EarlierBoot:  l.BootID != "" && l.BootID != r.bootID,
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
	t, err := r.task(ctx, rec.ID)
	if err != nil {
		return nil, err
	}
	switch status := statusOf(t); status {
	case task.Status_RUNNING, task.Status_PAUSED, task.Status_PAUSING:
		c.State, c.PID = runner.ContainerRunning, t.Pid
	case task.Status_CREATED:
		c.State, c.PID, c.StartedAt = runner.ContainerCreated, t.Pid, time.Time{}
	case noTask, task.Status_STOPPED:
		if l.StartedAt.IsZero() {
			return nil, nil
		}
		c.State = runner.ContainerExited
		c.Exit, err = r.exitOf(ctx, rec, t)
	default:
		return nil, fmt.Errorf("containerd cannot tell the state of its task (%s)", status)
	}
	return c, err
}

// noTask is the status of a task that does not exist.
const noTask task.Status = -1

func statusOf(t *task.Process) task.Status {
	if t == nil {
		return noTask
	}
	return t.Status
}

// task returns the task of a container, nil when there is none.
func (r *Runtime) task(ctx context.Context, id string) (*task.Process, error) {
	resp, err := r.client.TaskService().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	if err == nil {
		return resp.Process, nil
	}
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil, nil
	}
	return nil, fmt.Errorf("task: %w", err)
}

// exitOf tells how a container ended: from the shim's record, which also knows of OOM kills, else from the
// task, else it is unknown.
func (r *Runtime) exitOf(ctx context.Context, rec *containerRecord, t *task.Process) (*runner.Termination, error) {
	x := &runner.Termination{ContainerID: rec.ID, StartedAt: rec.Labels.StartedAt}
	f, err := shim.ReadExitRecord(r.exitFile(rec.ID))
	switch {
	case err == nil:
		x.ExitCode, x.FinishedAt, x.Reason = f.ExitCode, f.ExitedAt, exitReason(f.ExitCode, f.OOMKilled)
	case t != nil:
		x.ExitCode, x.FinishedAt = int(t.ExitStatus), t.ExitedAt.AsTime()
		x.Reason = exitReason(x.ExitCode, false)
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, atomicfile.ErrDamaged):
		return nil, err // it may be read the next time
	default:
		x.ExitCode, x.Reason, x.FinishedAt = exitUnknown, runner.ReasonUnknown, r.lostAt(rec)
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

// lostAt is when a container without task and exit record was first seen so; it stays the same for later looks.
func (r *Runtime) lostAt(rec *containerRecord) time.Time {
	if rec.LostAt.IsZero() {
		lost := *rec
		lost.LostAt = time.Now()
		r.index.putContainer(&lost)
		return lost.LostAt
	}
	return rec.LostAt
}

// Limits of the message taken from the log (terminationMessagePolicy FallbackToLogsOnError).
const (
	logMessageLines = 80
	logMessageBytes = 2048
)

// terminationMessage reads the container's message, or the end of its log where policy says so. What cannot be
// read is no message: the exit itself matters more.
func (r *Runtime) terminationMessage(ctx context.Context, rec *containerRecord, x *runner.Termination) string {
	l := &rec.Labels
	if l.MessagePath != "" {
		msg := readTail(l.MessagePath, l.MessageLimit)
		if msg == "" {
			msg = readTail(r.messageCopy(l.UID, rec.ID), l.MessageLimit) // it has ended before a reboot
		}
		if msg != "" {
			return msg
		}
	}
	if !l.MessageFromLogs || x.ExitCode == 0 {
		return ""
	}
	limit := min(logMessageBytes, l.MessageLimit)
	b := tailBuffer{limit: limit + utf8.UTFMax} // one more rune, of which the cut may leave a part
	err := logs.Read(ctx, l.LogPath, logs.ReadOptions{Tail: logMessageLines}, &b, &b)
	if err != nil {
		return ""
	}
	return lastBytes(string(b.end()), limit)
}

// tailBuffer keeps the end of what is written to it: a line of a container can be as long as its log.
type tailBuffer struct {
	limit int
	text  []byte
}

// Write implements io.Writer.
func (b *tailBuffer) Write(p []byte) (int, error) {
	b.text = append(b.text, p[max(0, len(p)-b.limit):]...)
	if over := len(b.text) - b.limit; over > b.limit { // not at each write
		b.text = append(b.text[:0], b.text[over:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) end() []byte { return b.text[max(0, len(b.text)-b.limit):] }

// readTail returns the last n bytes of a file, nothing when it cannot be read. The file is written by the container:
// only a regular one is opened.
func readTail(path string, n int) string {
	if path == "" || n <= 0 {
		return ""
	}
	f, err := openRegular(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return ""
	}
	if off := fi.Size() - int64(n); off > 0 {
		if _, err := f.Seek(off, io.SeekStart); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(n)))
	if err != nil {
		return ""
	}
	return lastBytes(string(b), n)
}
