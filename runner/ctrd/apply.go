package ctrd

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/spec"
)

// Apply implements runner.Runtime.
func (r *Runtime) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	do := func() error { return r.apply(r.ns(ctx), key, pod, a) }
	err := do()
	if ends(a.Kind) && r.reserve.spend(err) {
		err = do()
	}
	if err != nil {
		return err
	}
	return r.applied(key, a.Kind)
}

// ends says that an action is part of the end of something.
func ends(k runner.ActionKind) bool {
	switch k {
	case runner.FailPod, runner.MarkStopping, runner.StopContainer, runner.KillContainer, runner.FinishContainer, runner.RemoveContainer, runner.RemoveSandbox:
		return true
	default:
		return false
	}
}

func (r *Runtime) apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	switch a.Kind {
	case runner.FailPod:
		return r.failPod(ctx, key, a)
	case runner.RecordHealth:
		return r.recordHealth(ctx, key, a)
	case runner.MarkStarted:
		return r.markStarted(ctx, key, a)
	case runner.MarkStopping:
		return r.markStopping(ctx, key, a)
	case runner.StopContainer:
		return r.stopContainer(ctx, key, a)
	case runner.KillContainer:
		return r.killContainer(ctx, key, a)
	case runner.FinishContainer:
		return r.finishContainer(ctx, key, a)
	case runner.RemoveContainer:
		return r.applyRemoveContainer(ctx, key, a)
	case runner.RemoveSandbox:
		return r.removeSandbox(ctx, key, a)
	case runner.StartContainer:
		return r.startContainer(ctx, key, a)
	case runner.SetupNetwork:
		return r.setupNetwork(ctx, key)
	}
	if pod == nil {
		return fmt.Errorf("%s needs a pod", a.Kind)
	}
	return r.applyByPod(ctx, key, pod, a)
}

// applyByPod executes the actions that follow a manifest.
func (r *Runtime) applyByPod(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	switch a.Kind {
	case runner.CheckPod:
		return r.checkPod(ctx, pod)
	case runner.CreateSandbox:
		return stepError(runner.ReasonCreatePodSandboxError, r.createSandbox(ctx, key, pod, a))
	case runner.SyncVolumes:
		return r.syncVolumes(key, pod)
	case runner.ReviveSandbox:
		return stepError(runner.ReasonCreatePodSandboxError, r.reviveSandbox(ctx, key, pod))
	case runner.RecordPod:
		return r.recordPod(ctx, key, pod)
	case runner.UpdateResources:
		return r.updateResources(ctx, key, pod, a)
	case runner.EnsureImage:
		return r.ensureImage(ctx, pod, a)
	case runner.CreateContainer:
		return r.createContainer(ctx, key, pod, a)
	}
	return fmt.Errorf("unknown action %s", a.Kind)
}

func (r *Runtime) applyRemoveContainer(ctx context.Context, key manifests.Key, a runner.Action) error {
	rec := r.find(key, a)
	if rec == nil {
		return nil
	}
	done, err := r.slots.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	return r.removeContainer(ctx, rec.ID)
}

func (r *Runtime) ensureImage(ctx context.Context, pod *manifests.Pod, a runner.Action) error {
	c := manifests.FindContainer(&pod.Object.Spec, a.Container)
	if c == nil {
		return fmt.Errorf("pod %s has no container %s", pod.Key(), a.Container)
	}
	ctx, err := withLogins(ctx, pod)
	if err != nil {
		return stepError(runner.ReasonErrImagePull, err)
	}
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.Timeout)
		defer cancel()
	}
	if _, err := r.ensureImageOf(ctx, pod, c.Name, c.Image, c.ImagePullPolicy); err != nil {
		return stepError(runner.ReasonErrImagePull, err)
	}
	return r.ensureImageVolumes(ctx, pod, c)
}

// withLogins adds the logins of imagePullSecrets. Secrets that do not exist are passed over, as by a kubelet: the image
// may be there, or to be had without.
func withLogins(ctx context.Context, pod *manifests.Pod) (context.Context, error) {
	var logins []image.Login
	for _, ref := range pod.Object.Spec.ImagePullSecrets {
		s := pod.Refs.Secret(ref.Name)
		if s == nil {
			continue
		}
		more, err := image.ParseSecret(s)
		if err != nil {
			return nil, err
		}
		logins = append(logins, more...)
	}
	return image.WithLogins(ctx, logins), nil
}

// checkPod verifies all that can be before anything that runs is touched: images, users, host paths, specs.
func (r *Runtime) checkPod(ctx context.Context, pod *manifests.Pod) error {
	if _, err := spec.Hostname(pod.Object, r.cfg.NodeName, r.cfg.ClusterDomain); err != nil {
		return stepError(runner.ReasonCreatePodSandboxError, err)
	}
	if err := r.checkVolumes(pod); err != nil {
		return stepError(runner.ReasonCreateContainerConfigError, err)
	}
	if _, err := r.checkRuntime(ctx, pod); err != nil {
		return stepError(runner.ReasonCreatePodSandboxError, err)
	}
	var errs []error
	for c := range manifests.AllContainers(&pod.Object.Spec) {
		errs = append(errs, r.checkContainer(ctx, pod, c))
	}
	return errors.Join(errs...)
}

func (r *Runtime) checkContainer(ctx context.Context, p *manifests.Pod, c *corev1.Container) error {
	pod := p.Object
	ctx, err := withLogins(ctx, p)
	if err != nil {
		return stepError(runner.ReasonErrImagePull, err)
	}
	img, err := r.ensureImageOf(ctx, p, c.Name, c.Image, c.ImagePullPolicy)
	if err != nil {
		return stepError(runner.ReasonErrImagePull, err)
	}
	if err := r.ensureImageVolumes(ctx, p, c); err != nil {
		return err
	}
	user, err := r.user(ctx, pod, c, img)
	if err != nil {
		return err
	}
	in := spec.Input{Pod: pod, Container: c.Name, Image: img.Config, User: user, Refs: p.Refs, Host: r.facts()}
	if wantsRecursiveReadOnly(c) {
		class, err := manifests.RuntimeOf(p)
		if err != nil {
			return stepError(runner.ReasonCreatePodSandboxError, err)
		}
		rt, err := r.runtimeFor(ctx, class.Handler, ownUsers(pod))
		if err != nil {
			return stepError(runner.ReasonCreatePodSandboxError, err)
		}
		in.Host.RecursiveReadOnly = r.readsOnlyRecursively(ctx, rt)
	}
	if err := errors.Join(spec.Check(in), r.checkDevices(pod, c)); err != nil {
		return stepError(runner.ReasonCreateContainerConfigError, err)
	}
	return r.checkProfiles(in)
}

// user resolves who a container runs as.
func (r *Runtime) user(ctx context.Context, pod *corev1.Pod, c *corev1.Container, img *image.Image) (spec.User, error) {
	uid, gid, _ := spec.RequestedUser(pod, c.Name)
	u, err := r.images.ResolveUser(ctx, img, uid, gid)
	return u, stepError(runner.ReasonCreateContainerError, wrap("resolve user", err))
}

// specRequest is what a spec is made of besides the configuration.
type specRequest struct {
	pod  *corev1.Pod
	refs *manifests.Refs
	// images are those of manifests.Pod.
	images    map[string]string
	container *corev1.Container
	image     *image.Image
	sandbox   *sandboxRecord
	id        string
	// message is the host file behind terminationMessagePath.
	message string
}

// input gathers everything the spec of a container depends on, and prepares its volumes.
func (r *Runtime) input(ctx context.Context, q specRequest) (spec.Input, error) {
	user, err := r.user(ctx, q.pod, q.container, q.image)
	if err != nil {
		return spec.Input{}, err
	}
	pod := q.pod.DeepCopy()
	pod.UID = uidOf(q.sandbox)
	began, over := time.Now(), runner.BeginPhase(ctx, runner.PhaseVolumes)
	volumes, err := r.prepareVolumes(ctx, pod, q)
	over()
	if err != nil || len(volumes) > 0 {
		runner.TellPhase(ctx, runner.Phase{Name: runner.PhaseVolumes, Began: began, Over: time.Now(), Err: err})
	}
	if err != nil {
		return spec.Input{}, stepError(runner.ReasonCreateContainerConfigError, err)
	}
	sb, err := r.specSandbox(pod, q.sandbox)
	if err != nil {
		return spec.Input{}, stepError(runner.ReasonCreateContainerConfigError, err)
	}
	sb.TerminationLogPath = q.message
	in := spec.Input{
		Pod:       pod,
		Container: q.container.Name,
		ID:        q.id,
		Image:     q.image.Config,
		User:      user,
		Sandbox:   sb,
		Volumes:   volumes,
		Refs:      q.refs,
		Host:      r.facts(),
	}
	if in.EnvFiles, err = r.readEnvFiles(string(pod.UID), q.container); err != nil {
		return spec.Input{}, stepError(runner.ReasonCreateContainerConfigError, err)
	}
	if s := q.container.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
		in.Host.Devices = hostDevices("/dev") // those of now: devices come and go
	}
	return r.prepareMounts(ctx, in, q)
}

// facts are those of the machine as it is now.
func (r *Runtime) facts() spec.Host {
	h := r.host
	h.NodeIPs = r.cfg.NodeIPs()
	return h
}

// specSandbox describes what the containers of a sandbox share.
func (r *Runtime) specSandbox(pod *corev1.Pod, rec *sandboxRecord) (spec.Sandbox, error) {
	name, err := spec.Hostname(pod, r.cfg.NodeName, r.cfg.ClusterDomain)
	if err != nil {
		return spec.Sandbox{}, err
	}
	f := r.podFiles(rec)
	s := spec.Sandbox{
		ID:             rec.ID,
		Cgroup:         r.podCgroup(rec),
		Hostname:       name,
		IPs:            rec.Network.IPs,
		HostsPath:      f.Hosts(),
		HostnamePath:   f.Hostname(),
		ResolvConfPath: f.ResolvConf(),
	}
	ns := namespacesOf(pod)
	if ns.Net {
		s.NetNS = r.path("ns", rec.ID, "net")
	}
	if ns.UTS {
		s.UTSNS = r.path("ns", rec.ID, "uts")
	}
	if rec.Labels.FirstID > 0 {
		s.UserNS, s.FirstID = r.path("ns", rec.ID, "user"), rec.Labels.FirstID
	}
	if sharesProcesses(pod) {
		s.PIDNS = r.path("ns", rec.ID, "pid")
	}
	if ns.IPC {
		s.IPCNS = r.path("ns", rec.ID, "ipc")
		s.ShmPath = r.shmDir(rec.ID)
	}
	return s, nil
}
