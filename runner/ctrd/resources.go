package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/spec"
)

// preparePodCgroup makes the cgroup of a sandbox before there is anything in it. Those of releases that set no values have
// none of their own.
func (r *Runtime) preparePodCgroup(rec *sandboxRecord) error {
	if rec.Labels.Cgroup == "" {
		return nil
	}
	if err := r.cgroups.make(rec.Labels.Cgroup); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := r.cgroups.set(rec.Labels.Cgroup, spec.PodCgroup(rec.loaded(rec.Pod), r.host)); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// limitFormerPods puts the limit of processes on pods of releases that set it on each container.
func (r *Runtime) limitFormerPods() {
	limit := r.host.Enforce.PodPidsLimit
	for _, s := range r.index.list() {
		if s.Labels.Cgroup != "" || limit <= 0 {
			continue
		}
		if err := r.cgroups.setPids(r.podCgroup(s), limit); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("limit the processes of a pod of an earlier release", "pod", s.Labels.Key.String(), "err", err)
		}
	}
}

// weighClassOf does weighClasses for a sandbox that is in the index now; guaranteed pods change nothing there.
func (r *Runtime) weighClassOf(rec *sandboxRecord) error {
	if rec.Labels.Cgroup == "" || rec.Labels.QOSClass == corev1.PodQOSGuaranteed {
		return nil
	}
	return wrap("cgroup", r.weighClasses(nil))
}

// limitPods gives the cgroup of all pods its limits, or takes those away that an earlier run has set. The pods go on if that cannot be done:
// more memory may be in use than they are to have.
func (r *Runtime) limitPods() {
	root, limits := r.cgroups.root(), r.cfg.PodsLimits
	if limits.Memory == 0 && limits.Pids == 0 && limits.MilliCPU == 0 {
		if !r.cgroups.exists(root) {
			return
		}
		if v := r.cgroups.values(root); v.Memory == nil && v.Pids == nil {
			return
		}
		limits.MilliCPU = int64(runtime.NumCPU()) * 1000
	} else if err := r.cgroups.make(root); err != nil {
		r.log.Error("all pods together are not limited", "err", err)
		return
	}
	if err := r.cgroups.set(root, spec.PodsCgroup(limits, r.host)); err != nil {
		r.log.Error("all pods together are not limited", "err", err)
	}
}

// weighClasses sets what the cgroups above pods have: a share of the processors by what all pods of a class request.
// with is a sandbox that counts with another manifest than that in the index.
func (r *Runtime) weighClasses(with *sandboxRecord) error {
	defer r.locks.lock("classes")()
	pods := map[string]*corev1.Pod{}
	all := r.index.list()
	if with != nil {
		all = append(all, with)
	}
	for _, s := range all {
		if s.Labels.State == sandboxActive && s.Labels.QOSClass == corev1.PodQOSBurstable {
			pods[s.ID] = s.loaded(s.Pod)
		}
	}
	var burstable []*corev1.Pod
	for _, p := range pods {
		burstable = append(burstable, p)
	}
	var errs []error
	for _, c := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if r.cgroups.exists(r.cgroups.Class(c)) {
			errs = append(errs, r.cgroups.set(r.cgroups.Class(c), spec.ClassCgroup(c, burstable, r.host)))
		}
	}
	return errors.Join(errs...)
}

// updateResources gives a running container, or the cgroup of its pod, the resources of the manifest.
func (r *Runtime) updateResources(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	sb := r.index.sandbox(key)
	if sb == nil {
		return fmt.Errorf("pod %s has no sandbox", key)
	}
	if a.Container == "" {
		return stepError(runner.ReasonResizeError, r.resizePod(ctx, sb, pod))
	}
	rec := r.find(key, a)
	c := manifests.FindContainer(&pod.Object.Spec, a.Container)
	if rec == nil || c == nil {
		return nil // it is gone: the next look tells
	}
	if err := r.widenPod(sb, pod); err != nil {
		return stepError(runner.ReasonResizeError, err)
	}
	if err := r.resizeContainer(ctx, rec, pod.Object); err != nil {
		return stepError(runner.ReasonResizeError, err)
	}
	_, err := r.relabel(ctx, rec, func(l *containerLabels) {
		l.ResourcesHash, l.Resources = podhash.Resources(pod.Object, c.Name), new(manifests.Resizable(c.Resources))
	})
	return wrap("record resources", ignoreNotFound(err))
}

// loaded is a manifest with the overhead of the sandbox: that of the RuntimeClass when it was made.
func (s *sandboxRecord) loaded(pod *manifests.Pod) *corev1.Pod {
	if len(s.Labels.Overhead) == 0 {
		return pod.Object
	}
	p := *pod.Object // a copy of all that is looked at
	p.Spec.Overhead = s.Labels.Overhead
	return &p
}

// checkOverhead refuses an edit that gives a pod that runs another overhead.
func checkOverhead(s *sandboxRecord, pod *manifests.Pod) error {
	if own := pod.Object.Spec.Overhead; len(own) > 0 && !equality.Semantic.DeepEqual(own, s.Labels.Overhead) {
		return errors.New("spec.overhead is not what the pod was made with, which the API allows nobody to change")
	}
	return nil
}

// resizePod gives the pod's cgroup exactly what the manifest says, and records it.
func (r *Runtime) resizePod(ctx context.Context, sb *sandboxRecord, pod *manifests.Pod) error {
	if sb.Labels.Cgroup == "" {
		return nil // of a release that set no values
	}
	if err := checkOverhead(sb, pod); err != nil {
		return err
	}
	if err := r.cgroups.set(sb.Labels.Cgroup, spec.PodCgroup(sb.loaded(pod), r.host)); err != nil {
		return err
	}
	next, err := r.updateSandbox(ctx, sb.ID, func(s *sandboxRecord) {
		s.Labels.ResourcesHash = podhash.PodResources(pod.Object)
	}, "labels."+labelResourcesHash)
	if err != nil {
		return err
	}
	sized := *next
	sized.Pod = pod
	return r.weighClasses(&sized)
}

// widenPod makes the cgroup of a pod large enough for what its containers have and for what they are to have.
func (r *Runtime) widenPod(sb *sandboxRecord, pod *manifests.Pod) error {
	if sb.Labels.Cgroup == "" || sb.Labels.ResourcesHash == podhash.PodResources(pod.Object) {
		return nil
	}
	want, has := spec.PodCgroup(sb.loaded(pod), r.host), r.cgroups.values(sb.Labels.Cgroup)
	if has.Quota != nil && has.Period > 0 {
		*has.Quota = *has.Quota * int64(want.Period) / int64(has.Period)
	}
	return r.cgroups.set(sb.Labels.Cgroup, want.Widen(has))
}

// resizeContainer changes the cgroup of a container that runs.
func (r *Runtime) resizeContainer(ctx context.Context, rec *containerRecord, pod *corev1.Pod) error {
	own := exclusive(rec)
	if n := spec.WholeCPUs(pod, rec.Labels.Name); r.host.Enforce.StaticCPUs && n != len(own) {
		return fmt.Errorf("it has %d processors for itself, which cannot be changed while it runs: set resizePolicy RestartContainer for cpu", len(own))
	}
	in := spec.Input{Pod: pod, Container: rec.Labels.Name, Host: r.host}
	in.CPUs, in.ExclusiveCPUs = r.cpusOf(own)
	res, err := spec.Resources(in)
	if err != nil {
		return err
	}
	if limit := *res.Memory.Limit; limit > 0 && r.cgroups.controllers == nil {
		if err := makeRoom(filepath.Join(unifiedRoot, r.cgroupOf(rec)), limit); err != nil {
			return err
		}
	}
	data, err := typeurl.MarshalAnyToProto(res)
	if err != nil {
		return err
	}
	_, err = r.client.TaskService().Update(ctx, &tasksapi.UpdateTaskRequest{ContainerID: rec.ID, Resources: data})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil // it has ended
	}
	return err
}

// podCgroup is the cgroup of a sandbox's pod.
func (r *Runtime) podCgroup(sb *sandboxRecord) string {
	if sb.Labels.Cgroup == "" {
		return r.cgroups.Former(sb.Labels.UID)
	}
	return sb.Labels.Cgroup
}

// cgroupOf is the cgroup of a container.
func (r *Runtime) cgroupOf(rec *containerRecord) string {
	pod := rec.Labels.Cgroup
	if pod == "" {
		pod = r.cgroups.Former(rec.Labels.UID)
	}
	return r.cgroups.Container(pod, rec.ID)
}

// removePodCgroup removes the cgroup of a sandbox unless another one shares it, and gives back its share.
func (r *Runtime) removePodCgroup(ctx context.Context, rec *sandboxRecord) error {
	for _, o := range r.index.list() {
		if o.ID != rec.ID && r.podCgroup(o) == r.podCgroup(rec) {
			return nil
		}
	}
	if err := r.cgroups.remove(ctx, r.podCgroup(rec)); err != nil {
		return err
	}
	if rec.Labels.QOSClass != corev1.PodQOSBurstable {
		return nil
	}
	return r.weighClasses(nil)
}

// cleanCgroups removes cgroups of pods that nobody knows.
func (r *Runtime) cleanCgroups() error {
	known := map[string]bool{}
	for _, s := range r.index.list() {
		known[r.podCgroup(s)] = true
	}
	for _, c := range r.index.all() {
		known[filepath.Dir(r.cgroupOf(c))] = true
	}
	var errs []error
	for _, path := range r.cgroups.pods() {
		if !known[path] {
			errs = append(errs, r.cgroups.removeEmpty(path))
		}
	}
	return errors.Join(errs...)
}
