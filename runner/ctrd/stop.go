package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/moby/sys/signal"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/spec"
)

// logFlushTimeout bounds the wait for the last output of a container whose task is gone.
const logFlushTimeout = 2 * time.Second

// stopContainer sends the stop signal, once in the container's life. That it is going to be stopped is put on record before: one
// that ends by the signal of an agent or a containerd that ended then, too, did not end by itself. That the signal was sent is
// put on record afterwards: a crash in between repeats it, while the other order could lose it.
func (r *Runtime) stopContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil || !rec.Labels.StopSentAt.IsZero() {
		return nil
	}
	rec, err := r.recordStopping(ctx, rec, a.Cause)
	if rec == nil {
		return err
	}
	if err := r.signal(ctx, rec, r.stopSignal(rec, a.Signal)); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	_, err = r.relabel(ctx, rec, func(l *containerLabels) { l.StopSentAt = time.Now().UTC().Round(0) })
	return wrap("record stop", ignoreNotFound(err))
}

// markStopping puts on record when the end of a container began.
func (r *Runtime) markStopping(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil {
		return nil
	}
	_, err := r.recordStopping(ctx, rec, a.Cause)
	return err
}

// recordStopping puts on record that a container is going to be stopped, and why, unless that is there. It returns nil, nil when
// the container is gone.
func (r *Runtime) recordStopping(ctx context.Context, rec *containerRecord, cause runner.StopCause) (*containerRecord, error) {
	if !rec.Labels.StoppingAt.IsZero() {
		return rec, nil
	}
	next, err := r.relabel(ctx, rec, func(l *containerLabels) { l.StoppingAt, l.StopCause = time.Now().UTC().Round(0), cause })
	return next, wrap("record the end's beginning", ignoreNotFound(err))
}

// recordHealth puts on record what a container's probes say.
func (r *Runtime) recordHealth(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil {
		return nil
	}
	_, err := r.relabel(ctx, rec, func(l *containerLabels) {
		l.Health = runner.Health{Started: a.Health.Started, Ready: a.Health.Ready, Since: time.Now().UTC().Round(0)}
	})
	return wrap("record health", ignoreNotFound(err))
}

// markStarted puts on record that a container's postStart hook has succeeded.
func (r *Runtime) markStarted(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil {
		return nil
	}
	_, err := r.relabel(ctx, rec, func(l *containerLabels) { l.PostStart = runner.PostStartDone })
	return wrap("record the postStart hook", ignoreNotFound(err))
}

func (r *Runtime) killContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil {
		return nil
	}
	return wrap("kill", r.signal(ctx, rec, unix.SIGKILL))
}

// stopSignal returns the wanted signal, the image's STOPSIGNAL or SIGTERM.
func (r *Runtime) stopSignal(rec *containerRecord, wanted string) syscall.Signal {
	name := wanted
	if name == "" {
		name = rec.Labels.StopSignal
	}
	if name == "" {
		return unix.SIGTERM
	}
	sig, err := signal.ParseSignal(name)
	if err != nil {
		r.log.Warn("unknown stop signal, sending SIGTERM", "container", rec.Labels.Name, "signal", name)
		return unix.SIGTERM
	}
	return sig
}

// signal sends a signal to the container's init process; one that has ended, or does not exist, is fine.
// A process that was not started yet ignores everything but SIGKILL.
func (r *Runtime) signal(ctx context.Context, rec *containerRecord, sig syscall.Signal) error {
	t, err := r.task(ctx, rec.ID)
	if err != nil {
		return err
	}
	switch statusOf(t) {
	case noTask, task.Status_STOPPED:
		return nil
	case task.Status_CREATED:
		sig = unix.SIGKILL
	}
	if signalPid(int(t.Pid), rec.ID, sig, 0) {
		return nil
	}
	_, err = r.client.TaskService().Kill(ctx, &tasksapi.KillRequest{ContainerID: rec.ID, Signal: uint32(sig)})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// signalPid signals a process directly, which saves the exec of runc. The pid may have been given to another
// process meanwhile: only after a handle on it is held, and its cgroup proves to be the container's, does it get the signal.
// The flags are those of pidfd_send_signal(2).
func signalPid(pid int, id string, sig syscall.Signal, flags int) bool {
	if pid <= 0 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !inCgroup(string(b), id) {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, flags) == nil
}

// inCgroup says whether one of the paths in /proc/<pid>/cgroup has the container's cgroup in it.
func inCgroup(cgroups, id string) bool {
	for line := range strings.Lines(cgroups) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
		for elem := range strings.SplitSeq(path, "/") {
			if spec.ContainerOf(elem) == id {
				return true
			}
		}
	}
	return false
}

// finishContainer puts the exit on the labels and deletes the task. As long as the shim's exit record is there the
// task goes first, so that the message can be taken from the complete log; without it, the labels do.
func (r *Runtime) finishContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil {
		return nil
	}
	defer r.locks.lock(rec.ID)()
	exit := a.Exit
	if rec.Labels.Exit != nil {
		exit = rec.Labels.Exit
	}
	if exit == nil {
		return fmt.Errorf("finish container %s: no exit given", rec.ID)
	}
	final := *exit
	if _, err := os.Stat(r.exitFile(rec.ID)); err != nil {
		if rec, err = r.recordExit(ctx, rec, &final); rec == nil {
			return err
		}
	}
	if err := r.deleteTask(ctx, rec); err != nil {
		return err
	}
	flush, cancel := context.WithTimeout(ctx, logFlushTimeout)
	defer cancel()
	if err := r.logs.Finish(flush, rec.ID); err != nil {
		r.log.Warn("flush log", "container", rec.ID, "err", err)
	}
	if final.Reason != runner.ReasonStartError && (final.Message == "" || rec.Labels.MessageFromLogs) {
		final.Message = r.terminationMessage(ctx, rec, &final)
	}
	if rec, err := r.recordExit(ctx, rec, &final); rec == nil {
		return err
	}
	if rec.Labels.CPUs != "" {
		r.shareCPUs()
	}
	// The message last: were it gone, an exit that is taken up again would get another.
	return errors.Join(removeFile(r.exitFile(rec.ID)), r.removeMessage(rec))
}

// recordExit writes the exit on the labels unless it is there. It returns nil, nil when the container is gone.
func (r *Runtime) recordExit(ctx context.Context, rec *containerRecord, exit *runner.Termination) (*containerRecord, error) {
	if rec.Labels.Exit != nil && *rec.Labels.Exit == *exit {
		return rec, nil
	}
	next, err := r.relabel(ctx, rec, func(l *containerLabels) { l.Exit = exit })
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return next, wrap("record exit", err)
}

// removeContainer deletes everything of a container, killing it if need be.
func (r *Runtime) removeContainer(ctx context.Context, id string) error {
	defer r.locks.lock(id)()
	rec := r.index.container(id)
	if rec == nil {
		return nil
	}
	if err := r.deleteTask(ctx, rec); err != nil {
		return err
	}
	if err := r.cgroups.remove(ctx, r.cgroupOf(rec)); err != nil {
		return err
	}
	var g errgroup.Group
	g.Go(func() error {
		err := r.client.SnapshotService(r.cfg.Snapshotter).Remove(ctx, id)
		return wrap("remove snapshot", ignoreNotFound(err))
	})
	g.Go(func() error {
		flush, cancel := context.WithTimeout(ctx, logFlushTimeout)
		defer cancel()
		return errors.Join(
			wrap("finish log", r.logs.Finish(flush, id)),
			r.unlinkLog(rec),
			removeFile(r.exitFile(id)),
			r.removeHidden(id),
			r.removeMessage(rec),
			removeTree(r.imageVolumeDir(rec.Labels.UID, id)),
		)
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	if !r.index.uidInUse(rec.Labels.UID, "") && len(r.index.ofUID(rec.Labels.UID)) == 1 { // it outlived its sandbox
		if err := removeTree(r.podLogDir(rec.Labels.Key, rec.Labels.UID)); err != nil {
			return err
		}
	}
	if err := r.deleteRecord(ctx, id); err != nil {
		return err
	}
	if rec.Labels.CPUs != "" {
		r.shareCPUs()
	}
	return r.dropOldLogs(rec)
}

// deleteRecord is the last step of a removal: whatever fails before is tried again.
func (r *Runtime) deleteRecord(ctx context.Context, id string) error {
	if err := ignoreNotFound(r.client.ContainerService().Delete(ctx, id)); err != nil {
		return fmt.Errorf("delete record of container %s: %w", id, err)
	}
	r.index.deleteContainer(id)
	return nil
}

// deleteTask deletes a task, killing its process if it still runs.
func (r *Runtime) deleteTask(ctx context.Context, rec *containerRecord) error {
	id := rec.ID
	t, err := r.task(ctx, id)
	if err != nil {
		return err
	}
	if t == nil && rec.Labels.StartedAt.IsZero() {
		return r.killLostShim(id)
	}
	if t == nil {
		return nil
	}
	if t.Status != task.Status_STOPPED {
		if err := r.killAndWait(ctx, id, int(t.Pid)); err != nil {
			return err
		}
	}
	_, err = r.client.TaskService().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) && r.dropDamaged(id) {
		r.log.Warn("files of a container were damaged, and are removed with it", "container", id, "err", err)
		_, err = r.client.TaskService().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
	}
	return wrap("delete task "+id, ignoreNotFound(errgrpc.ToNative(err)))
}

func (r *Runtime) killAndWait(ctx context.Context, id string, pid int) error {
	if !signalPid(pid, id, unix.SIGKILL, 0) {
		_, err := r.client.TaskService().Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL)})
		if err = ignoreNotFound(errgrpc.ToNative(err)); err != nil {
			return fmt.Errorf("kill task %s: %w", id, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	_, err := r.client.TaskService().Wait(ctx, &tasksapi.WaitRequest{ContainerID: id})
	return wrap("wait for the end of task "+id, ignoreNotFound(errgrpc.ToNative(err)))
}

func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// removeFile removes a file that may be gone already.
func removeFile(path string) error {
	err := os.Remove(path)
	if info, serr := os.Lstat(path); err != nil && serr == nil && info.IsDir() {
		return removeTree(path) // somebody's damage, which must not keep a pod from going
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
