package ctrd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/shim"
	"monopod/runner/spec"
)

// cleanupTimeout bounds the removal of what a failed step leaves.
const cleanupTimeout = 30 * time.Second

// labelGCRoot keeps containerd's garbage collection from a snapshot whose container record does not exist yet.
const labelGCRoot = "containerd.io/gc.root"

// newContainer is a container on its way into being.
type newContainer struct {
	rec     *containerRecord
	sandbox *sandboxRecord
	image   *image.Image
	spec    *specs.Spec
	// cpus is the list of processors in its spec.
	cpus string
	// stdin says that its standard input is not at its end from the beginning.
	stdin bool
	// release ends the claim to its processors that its record makes good.
	release func()
	// undo takes back all that was prepared for it, before there is anything of its own.
	undo func()
}

// createContainer makes record, snapshot, log files and task of a new instance. On failure nothing of it stays. Several
// of a pod may be made at once; what they share, its volumes above all, is prepared by one after another.
func (r *Runtime) createContainer(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	unlock := r.locks.lock("plan " + key.String())
	n, err := r.planContainer(ctx, key, pod, a)
	unlock()
	if err != nil {
		return err
	}
	defer r.dropSubPaths(n.rec.ID) // the task has its own mounts by then
	defer r.book.forget(n.rec.ID)
	defer n.release()
	done, err := r.slots.take(ctx)
	if err != nil {
		n.undo()
		return err
	}
	defer done()
	if err := r.makeContainer(ctx, n); err != nil {
		r.index.putContainer(n.rec) // so that a failing clean-up is tried again
		if a.OrExit && refused(err) {
			return r.recordRefusal(ctx, n.rec, err)
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if cerr := r.removeContainer(clean, n.rec.ID); cerr != nil {
			r.teardown.discard(n.rec.ID)
			r.log.Warn("clean up after failed create", "container", n.rec.ID, "err", cerr)
		}
		return err
	}
	r.index.putContainer(n.rec)
	if n.rec.Labels.CPUs != "" || n.cpus != r.sharedCPUs().String() {
		r.shareCPUs() // before it starts
	}
	return nil
}

// planContainer decides everything about a new instance; it only touches what undo takes back, and the volumes.
func (r *Runtime) planContainer(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) (*newContainer, error) {
	sb := r.index.sandbox(key)
	if sb == nil {
		return nil, stepError(runner.ReasonCreateContainerError, fmt.Errorf("pod %s has no sandbox", key))
	}
	c := manifests.FindContainer(&pod.Object.Spec, a.Container)
	if c == nil {
		return nil, stepError(runner.ReasonCreateContainerConfigError, fmt.Errorf("pod %s has no container %s", key, a.Container))
	}
	img, err := r.images.Get(ctx, imageOf(pod, c.Name, c.Image))
	if err != nil {
		return nil, stepError(runner.ReasonImageInspectError, err)
	}
	if spec.NeedsIPs(pod.Object, c.Name) {
		if err := r.waitNetwork(ctx, sb.ID); err != nil {
			return nil, err
		}
		sb = r.index.sandboxByID(sb.ID)
	}
	id := newID()
	message, err := r.newMessage(sb, c, id)
	if err != nil {
		return nil, stepError(runner.ReasonCreateContainerError, err)
	}
	in, err := r.input(ctx, specRequest{pod: pod.Object, refs: pod.Refs, images: pod.Images, container: c, image: img, sandbox: sb, id: id, message: message})
	if err != nil {
		return nil, errors.Join(err, removeMessageFile(message))
	}
	own, release, err := r.assignCPUs(id, sb, pod.Object, c.Name)
	if err != nil {
		r.dropMounts(in)
		return nil, errors.Join(stepError(runner.ReasonCreateContainerError, err), removeMessageFile(message))
	}
	undo := func() {
		release()
		r.book.forget(id)
		r.dropMounts(in)
		if err := errors.Join(r.removeHidden(id), removeMessageFile(message)); err != nil {
			r.log.Warn("remove the environment and the message of a container", "container", id, "err", err)
		}
	}
	in.CPUs, in.ExclusiveCPUs = r.cpusOf(own)
	n := &newContainer{sandbox: sb, image: img, cpus: in.CPUs, stdin: c.Stdin, release: release, undo: undo}
	if n.spec, err = r.buildSpec(in); err != nil {
		undo()
		return nil, stepError(runner.ReasonCreateContainerConfigError, err)
	}
	if err := r.widenPod(sb, pod); err != nil {
		undo()
		return nil, stepError(runner.ReasonCreateContainerError, err)
	}
	n.rec = r.newRecord(id, pod, c, n, a)
	n.rec.Labels.CPUs, n.rec.Labels.MessagePath = own.String(), message
	n.rec.Labels.VolumeImages = mountedImages(in.Volumes)
	if n.rec.Labels.Devices, err = r.giveDevices(n, pod.Object, c, n.spec); err != nil {
		undo()
		return nil, stepError(runner.ReasonCreateContainerConfigError, err)
	}
	if spec.HasSecretEnv(c) { // last: devices may add to the environment
		if err := r.hide(id, n.spec); err != nil {
			undo()
			return nil, stepError(runner.ReasonCreateContainerError, err)
		}
	}
	return n, nil
}

// newRecord tells all of a new instance that is known before it is made.
func (r *Runtime) newRecord(id string, pod *manifests.Pod, c *corev1.Container, n *newContainer, a runner.Action) *containerRecord {
	sb, img := n.sandbox, n.image
	return &containerRecord{ID: id, Image: c.Image, CreatedAt: time.Now(), Labels: containerLabels{
		Owner:           r.cfg.RootDirectory,
		Key:             pod.Key(),
		UID:             sb.Labels.UID,
		Name:            c.Name,
		SandboxID:       sb.ID,
		Generation:      r.index.nextGeneration(pod.Key()),
		Hash:            podhash.Container(pod.Object, c.Name),
		ResourcesHash:   podhash.Resources(pod.Object, c.Name),
		Resources:       new(manifests.Resizable(c.Resources)),
		Cgroup:          sb.Labels.Cgroup,
		ImageID:         img.ID,
		Image:           img.Target,
		RestartCount:    a.RestartCount,
		BackOff:         a.BackOff,
		BootID:          r.bootID,
		Last:            a.Last,
		LogPath:         nextLogPath(r.containerLogDir(sb.Labels.Key, sb.Labels.UID, c.Name), a.RestartCount),
		StopSignal:      img.Config.StopSignal,
		MessageLimit:    messageLimit(pod.Object),
		PostStart:       postStart(c),
		Round:           a.Round,
		MessageFromLogs: c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError,
	}}
}

// postStart says whether a new instance has a hook to wait for.
func postStart(c *corev1.Container) runner.PostStart {
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		return runner.PostStartPending
	}
	return runner.PostStartNone
}

// buildSpec adds to the pure spec what needs containerd or our directories.
func (r *Runtime) buildSpec(in spec.Input) (*specs.Spec, error) {
	s, err := spec.Build(in)
	if err != nil {
		return nil, err
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[shim.AnnotationExitFile] = r.exitFile(in.ID)
	maps.Copy(s.Annotations, r.keepMessage(string(in.Pod.UID), in.ID, in.Sandbox.TerminationLogPath))
	if err := r.addProfiles(s, in); err != nil {
		return nil, err
	}
	return s, r.addLabels(s, in)
}

// makeContainer makes record, snapshot and log files side by side, then the task.
func (r *Runtime) makeContainer(ctx context.Context, n *newContainer) error {
	r.warnOfLimits()
	var (
		rootfs                []mount.Mount
		stdin, stdout, stderr string
	)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.createRecord(gctx, n) })
	g.Go(func() (err error) {
		rootfs, err = r.client.SnapshotService(r.cfg.Snapshotter).Prepare(gctx, n.rec.ID, n.image.ChainID,
			snapshots.WithLabels(map[string]string{
				labelGCRoot:  time.Now().UTC().Format(time.RFC3339),
				labelOwner:   r.cfg.RootDirectory,
				labelSandbox: n.sandbox.ID,
			}),
			snapshots.WithLabels(mapLabels(n.sandbox.Labels.FirstID)))
		return wrap("prepare snapshot", err)
	})
	g.Go(func() (err error) {
		if stdout, stderr, err = r.attachLogs(n.rec); err == nil && n.stdin {
			stdin, err = r.logs.Stdin(n.rec.ID)
		}
		return wrap("attach logs", err)
	})
	if err := g.Wait(); err != nil {
		return stepError(runner.ReasonCreateContainerError, err)
	}
	// Not before the record: its directory is not ours alone, so nobody could tell later whose the link was.
	if err := r.linkLog(n.rec); err != nil {
		return stepError(runner.ReasonCreateContainerError, err)
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
	if _, err := r.client.TaskService().Create(ctx, req); err != nil {
		// What runc refuses here (command not found, ...) users know as a failed start.
		return stepError(runner.ReasonRunContainerError, errgrpc.ToNative(err))
	}
	return nil
}

func (r *Runtime) createRecord(ctx context.Context, n *newContainer) error {
	rt, err := r.runtimeOf(ctx, n.sandbox)
	if err != nil {
		return err
	}
	opts, err := typeurl.MarshalAny(&options.Options{
		BinaryName: rt.path, Root: rt.root, SystemdCgroup: spec.IsSystemd(n.spec.Linux.CgroupsPath),
		IoUid: n.sandbox.Labels.FirstID, IoGid: n.sandbox.Labels.FirstID, // so that /dev/stdout can be opened again
	})
	if err != nil {
		return err
	}
	if n.sandbox.Labels.Handler == "" { // what others keep about containers, the shim does not know
		n.spec.Annotations[shim.AnnotationDelete] = shim.DeleteInProcess
	}
	s, err := typeurl.MarshalAny(n.spec)
	if err != nil {
		return err
	}
	created, err := r.client.ContainerService().Create(ctx, containers.Container{
		ID:          n.rec.ID,
		Labels:      n.rec.Labels.encode(),
		Image:       n.rec.Image,
		Runtime:     containers.RuntimeInfo{Name: r.cfg.ShimPath, Options: opts},
		Spec:        s,
		SnapshotKey: n.rec.ID,
		Snapshotter: r.cfg.Snapshotter,
	})
	if err != nil {
		return fmt.Errorf("create record: %w", err)
	}
	n.rec.CreatedAt = created.CreatedAt
	return nil
}

// attachLogs makes the log file's directory and the FIFOs.
func (r *Runtime) attachLogs(rec *containerRecord) (stdout, stderr string, err error) {
	if err := r.ownLogs(filepath.Dir(rec.Labels.LogPath)); err != nil {
		return "", "", err
	}
	return r.logs.Attach(rec.ID, rec.Labels.LogPath)
}

// startContainer waits for the network and starts the process. A start that fails leaves no instance.
func (r *Runtime) startContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil {
		return stepError(runner.ReasonRunContainerError, fmt.Errorf("container %s of pod %s does not exist", a.Container, key))
	}
	if err := r.waitNetwork(ctx, rec.Labels.SandboxID); err != nil {
		return err
	}
	t, err := r.task(ctx, rec.ID)
	if err != nil {
		return err
	}
	if s := statusOf(t); s != task.Status_CREATED && s != noTask && !rec.Labels.StartedAt.IsZero() {
		return nil // started before
	}
	rec, err = r.relabel(ctx, rec, func(l *containerLabels) { l.StartedAt = time.Now().UTC().Round(0) })
	if err != nil {
		return fmt.Errorf("record start: %w", err)
	}
	if _, err = r.client.TaskService().Start(ctx, &tasksapi.StartRequest{ContainerID: rec.ID}); err == nil {
		return nil
	}
	err = fmt.Errorf("start task: %w", errgrpc.ToNative(err))
	if ctx.Err() != nil || unanswered(err) {
		return err // it may have been started: the next Observe tells
	}
	if t, terr := r.task(ctx, rec.ID); terr == nil && statusOf(t) == task.Status_RUNNING {
		return nil // by a call of an agent that was killed, which went on
	}
	err = stepError(runner.ReasonRunContainerError, err)
	if a.OrExit {
		return r.recordRefusal(ctx, rec, err)
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if cerr := r.removeContainer(clean, rec.ID); cerr != nil {
		r.teardown.discard(rec.ID)
		err = errors.Join(err, cerr)
	}
	return stepError(runner.ReasonRunContainerError, err)
}

// unanswered says that nobody knows what has become of a request.
func unanswered(err error) bool {
	return errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err)
}

// refused says that the OCI runtime did not take a container; that it could not be asked is something else.
func refused(err error) bool {
	se, ok := errors.AsType[*runner.StepError](err)
	return ok && se.Reason == runner.ReasonRunContainerError && !unanswered(err)
}

// recordRefusal puts on record that an instance has ended because its process could not be started.
func (r *Runtime) recordRefusal(ctx context.Context, rec *containerRecord, refusal error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	now := time.Now().UTC().Round(0)
	_, err := r.relabel(ctx, rec, func(l *containerLabels) {
		l.StartedAt = now
		l.Exit = &runner.Termination{
			ContainerID: rec.ID, ExitCode: runner.ExitCodeStartError, Reason: runner.ReasonStartError,
			Message: refusal.Error(), StartedAt: now, FinishedAt: now, Cause: storedCause(refusal),
		}
	})
	if err == nil {
		err = r.finishContainer(ctx, rec.Labels.Key, runner.Action{Container: rec.Labels.Name, ContainerID: rec.ID})
	}
	if err != nil {
		return errors.Join(refusal, err)
	}
	return &runner.StepError{Reason: runner.ReasonStartError, Err: refusal}
}

// maxProgram bounds the name of a program on a record: all labels of a container have a limit.
const maxProgram = 1 << 10

// storedCause is the cause of an error as it is recorded with an exit, whose message is kept besides.
func storedCause(err error) cause.Cause {
	c := cause.Of(err)
	c.Detail, c.Program = "", c.Program[:min(len(c.Program), maxProgram)]
	return c
}

// find returns the instance an action is about: by id, else the newest with that name.
func (r *Runtime) find(key manifests.Key, a runner.Action) *containerRecord {
	var found *containerRecord
	for _, rec := range r.index.ofPod(key) {
		if a.ContainerID == rec.ID || (a.ContainerID == "" && a.Container == rec.Labels.Name) {
			found = rec
		}
	}
	return found
}

// relabel changes the labels of a record in containerd, then in the index.
func (r *Runtime) relabel(ctx context.Context, rec *containerRecord, change func(*containerLabels)) (*containerRecord, error) {
	next := *rec
	change(&next.Labels)
	_, err := r.client.ContainerService().Update(ctx, containers.Container{ID: rec.ID, Labels: next.Labels.encode()}, "labels")
	if err != nil {
		if errdefs.IsNotFound(err) {
			r.index.deleteContainer(rec.ID)
		}
		return nil, err
	}
	r.index.putContainer(&next)
	return &next, nil
}

// newID returns an id as kubelet's runtimes make them.
func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// stepError gives an error a waiting reason, unless it has one.
func stepError(reason string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*runner.StepError](err); ok {
		return err
	}
	if c := classify(err); c.Kind != "" && cause.Of(err).Kind == "" {
		err = cause.Wrap(err, c)
	}
	return &runner.StepError{Reason: reason, Err: err}
}

func wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}
