package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/moby/sys/signal"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/podlogs"
	"monopod/runner/ctrd/process"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/shims"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/volume"
)

// LogFlushTimeout bounds the wait for the last output of a container without a task.
const LogFlushTimeout = 2 * time.Second

// Lifecycle observes, stops and removes containers.
type Lifecycle struct {
	Client      *client.Client
	Records     *record.Store
	Index       *record.Index
	Dirs        layout.Dirs
	Logs        *logs.Collector
	PodLogs     *podlogs.Logs
	PodCgroups  *cgroup.Pods
	Secrets     *volume.Secrets
	Shims       *shims.Killer
	Slots       locks.Slots
	Snapshotter string
	BootID      string
	Log         *slog.Logger

	// locks has one lock for each container.
	locks locks.ByKey
}

// StopContainer sends the stop signal, once in the life of a container. The intention is recorded first: a container that receives
// the signal although the agent or containerd crashes then did not exit on its own. The signal is recorded afterwards: a crash in
// between repeats it, while the opposite order could lose it.
func (r *Lifecycle) StopContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil || !rec.Meta.StopSentAt.IsZero() {
		return nil
	}
	rec, err := r.recordStopping(ctx, rec, a.Cause)
	if rec == nil {
		return err
	}
	if err := r.signal(ctx, rec, r.stopSignal(rec, a.Signal)); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	_, err = r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) { l.StopSentAt = time.Now().UTC().Round(0) })
	return fault.Wrap("record stop", fault.IgnoreNotFound(err))
}

// MarkStopping records when stopping a container began.
func (r *Lifecycle) MarkStopping(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil {
		return nil
	}
	_, err := r.recordStopping(ctx, rec, a.Cause)
	return err
}

// recordStopping records that a container is being stopped, and why, unless that is recorded. It returns nil, nil if the container
// is gone.
func (r *Lifecycle) recordStopping(ctx context.Context, rec *record.Container, cause runner.StopCause) (*record.Container, error) {
	if !rec.Meta.StoppingAt.IsZero() {
		return rec, nil
	}
	next, err := r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) { l.StoppingAt, l.StopCause = time.Now().UTC().Round(0), cause })
	return next, fault.Wrap("record that it is stopping", fault.IgnoreNotFound(err))
}

// RecordHealth records the results of a container's probes.
func (r *Lifecycle) RecordHealth(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil {
		return nil
	}
	_, err := r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) { l.Health = a.Health })
	return fault.Wrap("record health", fault.IgnoreNotFound(err))
}

// MarkStarted records that a container's postStart hook has succeeded.
func (r *Lifecycle) MarkStarted(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil {
		return nil
	}
	_, err := r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) { l.PostStart = runner.PostStartDone })
	return fault.Wrap("record the postStart hook", fault.IgnoreNotFound(err))
}

// KillContainer kills a running container.
func (r *Lifecycle) KillContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil {
		return nil
	}
	return fault.Wrap("kill", r.signal(ctx, rec, unix.SIGKILL))
}

// stopSignal returns the requested signal, else the image's STOPSIGNAL, else SIGTERM.
func (r *Lifecycle) stopSignal(rec *record.Container, wanted string) syscall.Signal {
	name := wanted
	if name == "" {
		name = rec.Meta.StopSignal
	}
	if name == "" {
		return unix.SIGTERM
	}
	sig, err := signal.ParseSignal(name)
	if err != nil {
		r.Log.Warn("unknown stop signal, sending SIGTERM", "container", rec.Meta.Name, "signal", name)
		return unix.SIGTERM
	}
	return sig
}

// signal sends a signal to the container's init process. A missing or ended process is not an error. A process that was not
// started yet ignores all signals but SIGKILL.
func (r *Lifecycle) signal(ctx context.Context, rec *record.Container, sig syscall.Signal) error {
	t, err := r.Records.Task(ctx, rec.ID)
	if err != nil {
		return err
	}
	switch record.StatusOf(t) {
	case record.NoTask, task.Status_STOPPED:
		return nil
	case task.Status_CREATED:
		sig = unix.SIGKILL
	}
	if process.SignalPid(int(t.Pid), rec.ID, sig, 0) {
		return nil
	}
	_, err = r.Client.TaskService().Kill(ctx, &tasksapi.KillRequest{ContainerID: rec.ID, Signal: uint32(sig)})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// FinishContainer records the exit and deletes the task. If the shim has recorded the exit, the task is deleted first, so that the
// message can be taken from the complete log; otherwise the exit is recorded first.
func (r *Lifecycle) FinishContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil {
		return nil
	}
	defer r.locks.Lock(rec.ID)()
	exit := a.Exit
	if rec.Meta.Exit != nil {
		exit = rec.Meta.Exit
	}
	if exit == nil {
		return fmt.Errorf("finish container %s: no exit given", rec.ID)
	}
	final := *exit
	if _, err := os.Stat(r.Dirs.ExitFile(rec.ID)); err != nil {
		if rec, err = r.recordExit(ctx, rec, &final); rec == nil {
			return err
		}
	}
	if err := r.DeleteTask(ctx, rec); err != nil {
		return err
	}
	flush, cancel := context.WithTimeout(ctx, LogFlushTimeout)
	defer cancel()
	if err := r.Logs.Finish(flush, rec.ID); err != nil {
		r.Log.Warn("flush log", "container", rec.ID, "err", err)
	}
	if final.Reason != runner.ReasonStartError && (final.Message == "" || rec.Meta.MessageFromLogs) {
		final.Message = r.terminationMessage(ctx, rec, &final)
	}
	if rec, err := r.recordExit(ctx, rec, &final); rec == nil {
		return err
	}
	if rec.Meta.CPUs != "" {
		r.PodCgroups.ShareCPUs()
	}
	// The message last: an interrupted FinishContainer reads it again when it is repeated.
	return errors.Join(trees.RemoveFile(r.Dirs.ExitFile(rec.ID)), r.removeMessage(rec))
}

// recordExit records the exit unless it is recorded. It returns nil, nil if the container is gone.
func (r *Lifecycle) recordExit(ctx context.Context, rec *record.Container, exit *runner.Termination) (*record.Container, error) {
	if rec.Meta.Exit != nil && *rec.Meta.Exit == *exit {
		return rec, nil
	}
	next, err := r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) { l.Exit = exit })
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return next, fault.Wrap("record exit", err)
}

// RemoveContainer kills a container if necessary, and deletes all of it.
func (r *Lifecycle) RemoveContainer(ctx context.Context, id string) error {
	defer r.locks.Lock(id)()
	rec := r.Index.Container(id)
	if rec == nil {
		return nil
	}
	if err := r.DeleteTask(ctx, rec); err != nil {
		return err
	}
	if err := r.PodCgroups.Cgroups.Remove(ctx, r.PodCgroups.CgroupOf(rec)); err != nil {
		return err
	}
	var g errgroup.Group
	g.Go(func() error {
		err := r.Client.SnapshotService(r.Snapshotter).Remove(ctx, id)
		return fault.Wrap("remove snapshot", fault.IgnoreNotFound(err))
	})
	g.Go(func() error {
		flush, cancel := context.WithTimeout(ctx, LogFlushTimeout)
		defer cancel()
		return errors.Join(
			fault.Wrap("finish log", r.Logs.Finish(flush, id)),
			r.PodLogs.UnlinkLog(rec),
			trees.RemoveFile(r.Dirs.ExitFile(id)),
			r.Secrets.RemoveHidden(id),
			r.removeMessage(rec),
			trees.Remove(r.Dirs.ImageVolumeDir(rec.Meta.UID, id)),
		)
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	if !r.Index.UIDInUse(rec.Meta.UID, "") && len(r.Index.OfUID(rec.Meta.UID)) == 1 { // its sandbox is gone already
		if err := trees.Remove(r.Dirs.PodLogDir(rec.Meta.Key, rec.Meta.UID)); err != nil {
			return err
		}
	}
	if err := r.Records.DeleteRecord(ctx, id); err != nil {
		return err
	}
	if rec.Meta.CPUs != "" {
		r.PodCgroups.ShareCPUs()
	}
	return r.PodLogs.DropOldLogs(rec)
}

// DeleteTask deletes a task, and kills its process if it still runs.
func (r *Lifecycle) DeleteTask(ctx context.Context, rec *record.Container) error {
	id := rec.ID
	t, err := r.Records.Task(ctx, id)
	if err != nil {
		return err
	}
	if t == nil && rec.Meta.StartedAt.IsZero() {
		return r.Shims.KillLostShim(id)
	}
	if t == nil {
		return nil
	}
	if t.Status != task.Status_STOPPED {
		if err := r.killAndWait(ctx, id, int(t.Pid)); err != nil {
			return err
		}
	}
	_, err = r.Client.TaskService().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) && r.Shims.DropDamaged(id) {
		r.Log.Warn("removed damaged files together with a container", "container", id, "err", err)
		_, err = r.Client.TaskService().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
	}
	return fault.Wrap("delete task "+id, fault.IgnoreNotFound(errgrpc.ToNative(err)))
}

func (r *Lifecycle) killAndWait(ctx context.Context, id string, pid int) error {
	if !process.SignalPid(pid, id, unix.SIGKILL, 0) {
		_, err := r.Client.TaskService().Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL)})
		if err = fault.IgnoreNotFound(errgrpc.ToNative(err)); err != nil {
			return fmt.Errorf("kill task %s: %w", id, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	_, err := r.Client.TaskService().Wait(ctx, &tasksapi.WaitRequest{ContainerID: id})
	return fault.Wrap("wait for the end of task "+id, fault.IgnoreNotFound(errgrpc.ToNative(err)))
}

// ApplyRemoveContainer removes the container that an action names, if it exists.
func (r *Lifecycle) ApplyRemoveContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil {
		return nil
	}
	done, err := r.Slots.Take(ctx)
	if err != nil {
		return err
	}
	defer done()
	return r.RemoveContainer(ctx, rec.ID)
}

// DropLayer removes the writable layer of an ended container, and returns its size. The next container has a layer of its own.
func (r *Lifecycle) DropLayer(ctx context.Context, rec *record.Container) (int64, error) {
	if rec.Meta.Exit == nil {
		return 0, nil
	}
	defer r.locks.Lock(rec.ID)()
	if t, err := r.Records.Task(ctx, rec.ID); err != nil || t != nil {
		return 0, err
	}
	s := r.Client.SnapshotService(r.Snapshotter)
	layer, err := s.Usage(ctx, rec.ID)
	if err == nil {
		err = s.Remove(ctx, rec.ID)
	}
	if err != nil {
		return 0, fault.Wrap("remove the layer of container "+rec.ID, fault.IgnoreNotFound(err))
	}
	return layer.Size, nil
}
