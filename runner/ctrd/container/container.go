// Package container owns the life of one container: it plans, creates, starts, observes, stops and removes it. It must not touch
// what the containers of a pod share, which package sandbox creates, or decide when anything happens, which runner/plan does.
package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sync/errgroup"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/device"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/idrange"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/machine"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/podlogs"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/shim"
	"monopod/runner/ctrd/volume"
	"monopod/runner/spec"
)

// cleanupTimeout bounds the clean-up after a failed step.
const cleanupTimeout = 30 * time.Second

// discarder removes a container in the background.
type discarder interface{ Discard(id string) }

// Creator creates and starts containers.
type Creator struct {
	Planner     *Planner
	Client      *client.Client
	Records     *record.Store
	Index       *record.Index
	Dirs        layout.Dirs
	Logs        *logs.Collector
	PodLogs     *podlogs.Logs
	PodCgroups  *cgroup.Pods
	OCI         *oci.Runtimes
	CDI         *device.CDI
	Mounts      *volume.Mounts
	Network     *sandbox.Network
	Lifecycle   *Lifecycle
	Removal     discarder
	Slots       locks.Slots
	Host        spec.Host
	ShimPath    string
	Snapshotter string
	Log         *slog.Logger

	locks locks.ByKey
	// limitsLogged is used by warnOfLimits.
	limitsLogged sync.Once
}

// CreateContainer creates the record, snapshot, log files and task of a container. If it fails, it removes them. Several
// containers of a pod may be created in parallel; what they share, such as volumes, is prepared by one at a time.
func (r *Creator) CreateContainer(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	unlock := r.locks.Lock("plan " + key.String())
	planning, stop := runner.UntilRemoval(ctx) // volumes may be large
	n, err := r.Planner.planContainer(planning, key, pod, a)
	if err != nil && errors.Is(context.Cause(planning), runner.ErrRemoved) {
		err = runner.ErrRemoved
	}
	stop()
	unlock()
	if err != nil {
		return err
	}
	defer r.Mounts.DropSubPaths(n.rec.ID) // the task has its own mounts now
	defer r.CDI.Book.Forget(n.rec.ID)
	defer n.release()
	done, err := r.Slots.Take(ctx)
	if err != nil {
		n.undo()
		return err
	}
	defer done()
	if err := r.makeContainer(ctx, n); err != nil {
		r.Index.PutContainer(n.rec) // so that a failed clean-up is retried
		if a.OrExit && refused(err) {
			return r.recordRefusal(ctx, n.rec, err)
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if cerr := r.Lifecycle.RemoveContainer(clean, n.rec.ID); cerr != nil {
			r.Removal.Discard(n.rec.ID)
			r.Log.Warn("clean up after failed create", "container", n.rec.ID, "err", cerr)
		}
		return err
	}
	r.Index.PutContainer(n.rec)
	if n.rec.Meta.CPUs != "" || n.cpus != r.PodCgroups.SharedCPUs().String() {
		r.PodCgroups.ShareCPUs() // before the process starts
	}
	return nil
}

// makeContainer creates record, snapshot and log files in parallel, then the task.
func (r *Creator) makeContainer(ctx context.Context, n *newContainer) error {
	r.warnOfLimits()
	var (
		rootfs                []mount.Mount
		stdin, stdout, stderr string
	)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.createRecord(gctx, n) })
	g.Go(func() (err error) {
		rootfs, err = r.Client.SnapshotService(r.Snapshotter).Prepare(gctx, n.rec.ID, n.image.ChainID,
			snapshots.WithLabels(map[string]string{
				record.LabelGCRoot:  time.Now().UTC().Format(time.RFC3339),
				record.LabelOwner:   r.Dirs.Root,
				record.LabelSandbox: n.sandbox.ID,
			}),
			snapshots.WithLabels(idrange.SnapshotLabels(n.sandbox.Meta.FirstID)))
		return fault.Wrap("prepare snapshot", err)
	})
	g.Go(func() (err error) {
		if stdout, stderr, err = r.attachLogs(n.rec); err == nil && n.stdin {
			stdin, err = r.Logs.Stdin(n.rec.ID)
		}
		return fault.Wrap("attach logs", err)
	})
	if err := g.Wait(); err != nil {
		return fault.Step(runner.ReasonCreateContainerError, err)
	}
	// Not before the record: the directory of the links is shared, and a link without a record has no owner.
	if err := r.PodLogs.LinkLog(n.rec); err != nil {
		return fault.Step(runner.ReasonCreateContainerError, err)
	}
	req := &tasksapi.CreateTaskRequest{
		ContainerID: n.rec.ID, Stdin: stdin, Stdout: stdout, Stderr: stderr, Terminal: n.spec.Process.Terminal,
	}
	for _, m := range rootfs {
		if label := n.spec.Linux.MountLabel; label != "" && m.Type == "overlay" {
			m.Options = append(m.Options, fmt.Sprintf("context=%q", label))
		}
		req.Rootfs = append(req.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	if _, err := r.Client.TaskService().Create(ctx, req); err != nil {
		// Users know errors of runc at this point (command not found, ...) as a failed start.
		return fault.Step(runner.ReasonRunContainerError, errgrpc.ToNative(err))
	}
	return nil
}

func (r *Creator) createRecord(ctx context.Context, n *newContainer) error {
	rt, err := r.OCI.RuntimeOf(ctx, n.sandbox)
	if err != nil {
		return err
	}
	opts, err := typeurl.MarshalAny(&options.Options{
		BinaryName: rt.Path, Root: rt.Root, SystemdCgroup: spec.IsSystemd(n.spec.Linux.CgroupsPath),
		IoUid: n.sandbox.Meta.FirstID, IoGid: n.sandbox.Meta.FirstID, // lets containers open /dev/stdout again
	})
	if err != nil {
		return err
	}
	if n.sandbox.Meta.Handler == "" { // the shim does not know the state of other OCI runtimes
		n.spec.Annotations[shim.AnnotationDelete] = shim.DeleteInProcess
	}
	s, err := typeurl.MarshalAny(n.spec)
	if err != nil {
		return err
	}
	ext, err := n.rec.Extensions()
	if err != nil {
		return err
	}
	created, err := r.Client.ContainerService().Create(ctx, containers.Container{
		ID:          n.rec.ID,
		Labels:      n.rec.Meta.Labels(),
		Extensions:  ext,
		Image:       n.rec.Image,
		Runtime:     containers.RuntimeInfo{Name: r.ShimPath, Options: opts},
		Spec:        s,
		SnapshotKey: n.rec.ID,
		Snapshotter: r.Snapshotter,
	})
	if err != nil {
		return fmt.Errorf("create record: %w", err)
	}
	n.rec.CreatedAt = created.CreatedAt
	return nil
}

// attachLogs creates the directory of the log file and the FIFOs.
func (r *Creator) attachLogs(rec *record.Container) (stdout, stderr string, err error) {
	if err := r.PodLogs.OwnLogs(filepath.Dir(rec.Meta.LogPath)); err != nil {
		return "", "", err
	}
	return r.Logs.Attach(rec.ID, rec.Meta.LogPath)
}

// StartContainer waits for the network and starts the process. If it fails, it removes the container.
func (r *Creator) StartContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.Records.Find(key, a)
	if rec == nil {
		return fault.Step(runner.ReasonRunContainerError, fmt.Errorf("container %s of pod %s does not exist", a.Container, key))
	}
	if err := r.Network.WaitNetwork(ctx, rec.Meta.SandboxID); err != nil {
		return err
	}
	t, err := r.Records.Task(ctx, rec.ID)
	if err != nil {
		return err
	}
	if s := record.StatusOf(t); s != task.Status_CREATED && s != record.NoTask && !rec.Meta.StartedAt.IsZero() {
		return nil // started before
	}
	rec, err = r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) { l.StartedAt = time.Now().UTC().Round(0) })
	if err != nil {
		return fmt.Errorf("record start: %w", err)
	}
	if _, err = r.Client.TaskService().Start(ctx, &tasksapi.StartRequest{ContainerID: rec.ID}); err == nil {
		return nil
	}
	err = fmt.Errorf("start task: %w", errgrpc.ToNative(err))
	if ctx.Err() != nil || unanswered(err) {
		return err // it may have been started; the next Observe reports it
	}
	if t, terr := r.Records.Task(ctx, rec.ID); terr == nil && record.StatusOf(t) == task.Status_RUNNING {
		return nil // by a call of a killed agent, which containerd completed
	}
	err = fault.Step(runner.ReasonRunContainerError, err)
	if a.OrExit && refused(err) {
		return r.recordRefusal(ctx, rec, err)
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if cerr := r.Lifecycle.RemoveContainer(clean, rec.ID); cerr != nil {
		r.Removal.Discard(rec.ID)
		err = errors.Join(err, cerr)
	}
	return fault.Step(runner.ReasonRunContainerError, err)
}

// unanswered reports whether the result of a request is unknown.
func unanswered(err error) bool {
	return errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err)
}

// refused reports whether the OCI runtime refused a container, as opposed to not being reached, or to trouble of the machine such as a full
// disk: then nothing has run, and the start is tried again.
func refused(err error) bool {
	se, ok := errors.AsType[*runner.StepError](err)
	return ok && se.Reason == runner.ReasonRunContainerError && !unanswered(err) && !fault.OfTheMachine(err)
}

// recordRefusal records that a container has ended because its process could not be started.
func (r *Creator) recordRefusal(ctx context.Context, rec *record.Container, refusal error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	now := time.Now().UTC().Round(0)
	_, err := r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) {
		l.StartedAt = now
		l.Exit = &runner.Termination{
			ContainerID: rec.ID, ExitCode: runner.ExitCodeStartError, Reason: runner.ReasonStartError,
			Message: refusal.Error(), StartedAt: now, FinishedAt: now, Cause: storedCause(refusal),
		}
	})
	if err == nil {
		err = r.Lifecycle.FinishContainer(ctx, rec.Meta.Key, runner.Action{Container: rec.Meta.Name, ContainerID: rec.ID})
	}
	if err != nil {
		return errors.Join(refusal, err)
	}
	return &runner.StepError{Reason: runner.ReasonStartError, Err: refusal}
}

// maxProgram limits the name of a program in a record.
const maxProgram = 1 << 10

// storedCause returns the cause of an error as it is recorded with an exit, beside the message.
func storedCause(err error) cause.Cause {
	c := cause.Of(err)
	c.Detail, c.Program = "", c.Program[:min(len(c.Program), maxProgram)]
	return c
}

// warnOfLimits logs once which features this machine lacks for all containers. Only an agent that creates containers needs it.
func (r *Creator) warnOfLimits() {
	r.limitsLogged.Do(func() {
		if !slices.Contains(r.Host.Capabilities, machine.CapSysResource) {
			r.Log.Warn("CAP_SYS_RESOURCE is missing: containers get no oom_score_adj below our own", "oom_score_adj", r.Host.MinOOMScoreAdj)
		}
	})
}
