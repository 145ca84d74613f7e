package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/containerd/containerd/api/types/task"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/confine"
	"monopod/runner/ctrd/device"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/idrange"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/imageuse"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/podlogs"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/shim"
	"monopod/runner/ctrd/volume"
	"monopod/runner/spec"
	"monopod/runner/spec/build"
	"monopod/runner/spec/environ"
	"monopod/runner/spec/etcfiles"
)

// Planner checks pods, and decides all about a new container before it is created.
type Planner struct {
	Index         *record.Index
	Records       *record.Store
	Dirs          layout.Dirs
	Images        *imagestore.Store
	ImageUse      *imageuse.Images
	OCI           *oci.Runtimes
	Files         *sandbox.Files
	Network       *sandbox.Network
	Volumes       *volume.Pods
	Mounts        *volume.Mounts
	Secrets       *volume.Secrets
	Profiles      *confine.Profiles
	CDI           *device.CDI
	PodCgroups    *cgroup.Pods
	NodeName      string
	ClusterDomain string
	BootID        string
	// Facts returns the current facts about the machine.
	Facts func() spec.Host
	// Services returns the environment variables of the Services in a namespace that pods of a source see; nil means none.
	Services func(source, namespace string) map[string]string
	// API is the Kubernetes API of this machine; if nil, pods cannot use it.
	API spec.API
	Log *slog.Logger
}

// CheckPod verifies images, users, host paths and specs before anything that runs is touched.
func (r *Planner) CheckPod(ctx context.Context, pod *manifests.Pod) error {
	if _, err := etcfiles.Hostname(pod.Object, r.NodeName, r.ClusterDomain); err != nil {
		return fault.Step(runner.ReasonCreatePodSandboxError, err)
	}
	if err := r.Volumes.CheckVolumes(pod); err != nil {
		return fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	if _, err := r.OCI.CheckRuntime(ctx, pod); err != nil {
		return fault.Step(runner.ReasonCreatePodSandboxError, err)
	}
	var errs []error
	for c := range manifests.AllContainers(&pod.Object.Spec) {
		errs = append(errs, r.checkContainer(ctx, pod, c))
	}
	return errors.Join(errs...)
}

func (r *Planner) checkContainer(ctx context.Context, p *manifests.Pod, c *corev1.Container) error {
	pod := p.Object
	ctx, err := imageuse.WithLogins(ctx, p)
	if err != nil {
		return fault.Step(runner.ReasonErrImagePull, err)
	}
	img, err := r.ImageUse.EnsureImageOf(ctx, p, c.Name, c.Image, c.ImagePullPolicy)
	if err != nil {
		return fault.Step(runner.ReasonErrImagePull, err)
	}
	if err := r.ImageUse.EnsureImageVolumes(ctx, p, c); err != nil {
		return err
	}
	user, err := r.user(ctx, pod, c, img)
	if err != nil {
		return err
	}
	in := spec.Input{Pod: pod, Container: c.Name, Image: img.Config, User: user, Refs: p.Refs, Host: r.Facts(), Services: r.services(pod, p.Origin.Source)}
	if volume.WantsRecursiveReadOnly(c) {
		class, err := manifests.RuntimeOf(p)
		if err != nil {
			return fault.Step(runner.ReasonCreatePodSandboxError, err)
		}
		rt, err := r.OCI.RuntimeFor(ctx, class.Handler, idrange.Wanted(pod))
		if err != nil {
			return fault.Step(runner.ReasonCreatePodSandboxError, err)
		}
		in.Host.RecursiveReadOnly = r.OCI.SupportsRecursiveReadOnly(ctx, rt)
	}
	if err := errors.Join(build.Check(in), r.CDI.CheckDevices(pod, c)); err != nil {
		return fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	return r.Profiles.CheckProfiles(in)
}

// services returns the environment variables of Services for a pod of a source, and those of the API if the pod uses it; the latter cannot be
// disabled by a field.
func (r *Planner) services(pod *corev1.Pod, source string) map[string]string {
	var all map[string]string
	if r.Services != nil && (pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks) {
		all = r.Services(source, pod.Namespace)
	}
	if r.API == nil {
		return all
	}
	api := r.API.Variables(pod)
	if len(api) == 0 {
		return all
	}
	api = maps.Clone(api)
	maps.Copy(api, all)
	return api
}

// user resolves the user that a container runs as.
func (r *Planner) user(ctx context.Context, pod *corev1.Pod, c *corev1.Container, img *image.Image) (spec.User, error) {
	uid, gid, _ := build.RequestedUser(pod, c.Name)
	u, err := r.Images.Local.ResolveUser(ctx, img, uid, gid)
	return u, fault.Step(runner.ReasonCreateContainerError, fault.Wrap("resolve user", err))
}

// input collects everything that the spec of a container depends on, and prepares its volumes.
func (r *Planner) input(ctx context.Context, q volume.Request) (spec.Input, error) {
	user, err := r.user(ctx, q.Pod, q.Container, q.Image)
	if err != nil {
		return spec.Input{}, err
	}
	pod := q.Pod.DeepCopy()
	pod.UID = record.UIDOf(q.Sandbox)
	began, over := time.Now(), runner.BeginPhase(ctx, runner.PhaseVolumes)
	volumes, err := r.Volumes.PrepareVolumes(ctx, pod, q)
	over()
	if err != nil || len(volumes) > 0 {
		runner.ReportPhase(ctx, runner.Phase{Name: runner.PhaseVolumes, Began: began, Over: time.Now(), Err: err})
	}
	if err != nil {
		return spec.Input{}, fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	sb, err := r.Files.SpecSandbox(pod, q.Sandbox)
	if err != nil {
		return spec.Input{}, fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	if e := manifests.FindEphemeral(&pod.Spec, q.Container.Name); e != nil && e.TargetContainerName != "" && sb.PIDNS == "" && !pod.Spec.HostPID {
		if sb.PIDNS, err = r.processesOf(ctx, q.Sandbox, e.TargetContainerName); err != nil {
			return spec.Input{}, fault.Step(runner.ReasonCreateContainerError, err)
		}
	}
	sb.TerminationLogPath = q.Message
	in := spec.Input{
		Pod:       pod,
		Container: q.Container.Name,
		ID:        q.ID,
		Image:     q.Image.Config,
		User:      user,
		Sandbox:   sb,
		Volumes:   volumes,
		Refs:      q.Refs,
		Host:      r.Facts(),
		Services:  r.services(pod, q.Source),
	}
	if in.EnvFiles, err = r.Volumes.ReadEnvFiles(string(pod.UID), q.Container); err != nil {
		return spec.Input{}, fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	if s := q.Container.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
		in.Host.Devices = device.All("/dev") // read now: devices come and go
	}
	return r.Mounts.PrepareMounts(ctx, in, q)
}

// processesOf returns the path of the PID namespace of the running container that an ephemeral container targets.
func (r *Planner) processesOf(ctx context.Context, sb *record.Sandbox, target string) (string, error) {
	for _, rec := range slices.Backward(r.Index.OfSandbox(sb.ID)) {
		if rec.Meta.Name != target {
			continue
		}
		t, err := r.Records.Task(ctx, rec.ID)
		if err != nil {
			return "", err
		}
		if record.StatusOf(t) == task.Status_RUNNING {
			return fmt.Sprintf("/proc/%d/ns/pid", t.Pid), nil
		}
	}
	return "", fmt.Errorf("target container %s does not run", target)
}

// newContainer is a container that is being created.
type newContainer struct {
	rec     *record.Container
	sandbox *record.Sandbox
	image   *image.Image
	spec    *specs.Spec
	// cpus is the list of CPUs in its spec.
	cpus string
	// stdin is set if its standard input stays open.
	stdin bool
	// release frees its CPUs in memory, once its record holds them.
	release func()
	// undo reverts all preparations, before anything of the container itself exists.
	undo func()
}

// planContainer decides all about a new container. It changes only volumes and what undo reverts.
func (r *Planner) planContainer(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) (*newContainer, error) {
	sb := r.Index.Sandbox(key)
	if sb == nil {
		return nil, fault.Step(runner.ReasonCreateContainerError, fmt.Errorf("pod %s has no sandbox", key))
	}
	c := manifests.FindContainer(&pod.Object.Spec, a.Container)
	if c == nil {
		return nil, fault.Step(runner.ReasonCreateContainerConfigError, fmt.Errorf("pod %s has no container %s", key, a.Container))
	}
	img, err := r.Images.Get(ctx, volume.ImageOf(pod, c.Name, c.Image))
	if err != nil {
		return nil, fault.Step(runner.ReasonImageInspectError, err)
	}
	if environ.NeedsIPs(pod.Object, c.Name) {
		if err := r.Network.WaitNetwork(ctx, sb.ID); err != nil {
			return nil, err
		}
		sb = r.Index.SandboxByID(sb.ID)
	}
	id := record.NewID()
	message, err := r.Files.NewMessage(sb, c, id)
	if err != nil {
		return nil, fault.Step(runner.ReasonCreateContainerError, err)
	}
	in, err := r.input(ctx, volume.Request{Pod: pod.Object, Source: pod.Origin.Source, Refs: pod.Refs, Images: pod.Images, Container: c, Image: img, Sandbox: sb, ID: id, Message: message})
	if err != nil {
		return nil, errors.Join(err, removeMessageFile(message))
	}
	own, release, err := r.PodCgroups.AssignCPUs(id, sb, pod.Object, c.Name)
	if err != nil {
		r.Mounts.DropMounts(in)
		return nil, errors.Join(fault.Step(runner.ReasonCreateContainerError, err), removeMessageFile(message))
	}
	undo := func() {
		release()
		r.CDI.Book.Forget(id)
		r.Mounts.DropMounts(in)
		if err := errors.Join(r.Secrets.RemoveHidden(id), removeMessageFile(message)); err != nil {
			r.Log.Warn("remove the environment and the message of a container", "container", id, "err", err)
		}
	}
	in.CPUs, in.ExclusiveCPUs = r.PodCgroups.CpusOf(own)
	n := &newContainer{sandbox: sb, image: img, cpus: in.CPUs, stdin: c.Stdin, release: release, undo: undo}
	if n.spec, err = r.buildSpec(ctx, in); err != nil {
		undo()
		return nil, fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	if err := r.PodCgroups.WidenPod(sb, pod); err != nil {
		undo()
		return nil, fault.Step(runner.ReasonCreateContainerError, err)
	}
	n.rec = r.newRecord(id, pod, c, n, a)
	n.rec.Meta.CPUs, n.rec.Meta.MessagePath = own.String(), message
	n.rec.Meta.VolumeImages = imageuse.MountedImages(in.Volumes)
	if n.rec.Meta.Devices, err = r.CDI.GiveDevices(n.rec, pod.Object, c, n.spec); err != nil {
		undo()
		return nil, fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	if environ.HasSecretEnv(c) { // last, because devices may add to the environment
		if err := r.Secrets.Hide(n.rec, n.spec); err != nil {
			undo()
			return nil, fault.Step(runner.ReasonCreateContainerError, err)
		}
	}
	return n, nil
}

// newRecord returns the record of a new container.
func (r *Planner) newRecord(id string, pod *manifests.Pod, c *corev1.Container, n *newContainer, a runner.Action) *record.Container {
	sb, img := n.sandbox, n.image
	return &record.Container{ID: id, Image: c.Image, CreatedAt: time.Now(), Meta: record.ContainerMeta{
		Owner:           r.Dirs.Root,
		Key:             pod.Key(),
		UID:             sb.Meta.UID,
		Name:            c.Name,
		SandboxID:       sb.ID,
		Generation:      r.Index.NextGeneration(pod.Key()),
		Hash:            podhash.Container(pod.Object, c.Name),
		ResourcesHash:   podhash.Resources(pod.Object, c.Name),
		Resources:       new(manifests.Resizable(c.Resources)),
		PodResources:    new(manifests.PodResizable(&pod.Object.Spec)),
		Cgroup:          sb.Meta.Cgroup,
		ImageID:         img.ID,
		Image:           img.Target,
		RestartCount:    a.RestartCount,
		BackOff:         a.BackOff,
		BootID:          r.BootID,
		Last:            a.Last,
		LogPath:         podlogs.NextLogPath(r.Dirs.ContainerLogDir(sb.Meta.Key, sb.Meta.UID, c.Name), a.RestartCount),
		StopSignal:      img.Config.StopSignal,
		MessageLimit:    messageLimit(pod.Object),
		PostStart:       postStart(c),
		Round:           a.Round,
		MessageFromLogs: c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError,
	}}
}

// postStart returns whether a new container has a hook to wait for.
func postStart(c *corev1.Container) runner.PostStart {
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		return runner.PostStartPending
	}
	return runner.PostStartNone
}

// buildSpec builds the spec, with the parts that need containerd or our directories.
func (r *Planner) buildSpec(ctx context.Context, in spec.Input) (*specs.Spec, error) {
	s, err := build.Spec(in)
	if err != nil {
		return nil, err
	}
	if err := volume.MakeMountpoints(r.Dirs.FilesDir(string(in.Pod.UID)), s.Mounts); err != nil {
		return nil, err
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[shim.AnnotationExitFile] = r.Dirs.ExitFile(in.ID)
	maps.Copy(s.Annotations, keepMessage(r.Dirs, string(in.Pod.UID), in.ID, in.Sandbox.TerminationLogPath))
	if err := r.Profiles.AddProfiles(s, in); err != nil {
		return nil, err
	}
	return s, r.Profiles.AddLabels(ctx, s, in)
}

// keepMessage returns the annotations that make the shim copy the message.
func keepMessage(d layout.Dirs, uid, id, path string) map[string]string {
	if path == "" {
		return nil
	}
	return map[string]string{shim.AnnotationMessage: path, shim.AnnotationMessageCopy: d.MessageCopy(uid, id)}
}

// Limits of termination messages, for one container and all of a pod.
const (
	MaxMessage    = 4096
	maxPodMessage = 12 << 10
)

// messageLimit returns each container's share of the pod's 12 KiB of termination messages.
func messageLimit(pod *corev1.Pod) int {
	n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
	return min(MaxMessage, maxPodMessage/max(n, 1))
}
