package cgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/record"
	"monopod/runner/spec"
	"monopod/runner/spec/limits"
)

// Pods keeps the cgroups of pods, and that of all pods together, as the manifests require.
type Pods struct {
	Cgroups Tree
	Cpus    *CPUs
	Client  *client.Client
	Records *record.Store
	Index   *record.Index
	Host    spec.Host
	Log     *slog.Logger

	locks locks.ByKey
}

// PreparePodCgroup creates the cgroup of a sandbox, with its limits, before any process is in it.
func (r *Pods) PreparePodCgroup(rec *record.Sandbox) error {
	if err := r.Cgroups.make(rec.Meta.Cgroup); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := r.Cgroups.set(rec.Meta.Cgroup, limits.ForPod(rec.Loaded(rec.Pod), r.Host)); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// WeighClassOf calls weighClasses after a sandbox was added to the index. Guaranteed pods do not affect it.
func (r *Pods) WeighClassOf(rec *record.Sandbox) error {
	if rec.Meta.QOSClass == corev1.PodQOSGuaranteed {
		return nil
	}
	return fault.Wrap("cgroup", r.weighClasses(nil))
}

// LimitPods sets the limits of the cgroup of all pods, or removes those of an earlier run. An error does not stop the pods: more
// memory than the new limit may be in use.
func (c Tree) LimitPods(most limits.AllPods, host spec.Host) error {
	root := c.AllPods()
	if most.Memory == 0 && most.Pids == 0 && most.MilliCPU == 0 {
		if !c.exists(root) {
			return nil
		}
		if v := c.Values(root); v.Memory == nil && v.Pids == nil {
			return nil
		}
		most.MilliCPU = int64(runtime.NumCPU()) * 1000
	} else if err := c.make(root); err != nil {
		return err
	}
	return c.set(root, limits.ForAllPods(most, host))
}

// weighClasses sets the CPU weight of the class cgroups to what the pods of each class request. with is a sandbox whose manifest
// replaces that in the index.
func (r *Pods) weighClasses(with *record.Sandbox) error {
	defer r.locks.Lock("classes")()
	pods := map[string]*corev1.Pod{}
	all := r.Index.List()
	if with != nil {
		all = append(all, with)
	}
	for _, s := range all {
		if s.Meta.State == record.Active && s.Meta.QOSClass == corev1.PodQOSBurstable {
			pods[s.ID] = s.Loaded(s.Pod)
		}
	}
	var burstable []*corev1.Pod
	for _, p := range pods {
		burstable = append(burstable, p)
	}
	var errs []error
	for _, c := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if r.Cgroups.exists(r.Cgroups.Class(c)) {
			errs = append(errs, r.Cgroups.set(r.Cgroups.Class(c), limits.ForClass(c, burstable, r.Host)))
		}
	}
	return errors.Join(errs...)
}

// UpdateResources applies the resources of the manifest to a running container, or to the cgroup of its pod.
func (r *Pods) UpdateResources(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	sb := r.Index.Sandbox(key)
	if sb == nil {
		return fmt.Errorf("pod %s has no sandbox", key)
	}
	if a.Container == "" {
		return fault.Step(runner.ReasonResizeError, r.resizePod(ctx, sb, pod))
	}
	rec := r.Records.Find(key, a)
	c := manifests.FindContainer(&pod.Object.Spec, a.Container)
	if rec == nil || c == nil {
		return nil // it is gone; the next Observe reports it
	}
	if err := r.WidenPod(sb, pod); err != nil {
		return fault.Step(runner.ReasonResizeError, err)
	}
	if err := r.resizeContainer(ctx, rec, pod.Object); err != nil {
		return fault.Step(runner.ReasonResizeError, err)
	}
	_, err := r.Records.UpdateContainer(ctx, rec, func(l *record.ContainerMeta) {
		l.ResourcesHash, l.Resources = podhash.Resources(pod.Object, c.Name), new(manifests.Resizable(c.Resources))
		l.PodResources = new(manifests.PodResizable(&pod.Object.Spec))
	})
	return fault.Wrap("record resources", fault.IgnoreNotFound(err))
}

// checkOverhead refuses an edit of the overhead of a running pod.
func checkOverhead(s *record.Sandbox, pod *manifests.Pod) error {
	if own := pod.Object.Spec.Overhead; len(own) > 0 && !equality.Semantic.DeepEqual(own, s.Meta.Overhead) {
		return errors.New("spec.overhead cannot be changed")
	}
	return nil
}

// resizePod sets the limits of the pod's cgroup to those of the manifest, and records them.
func (r *Pods) resizePod(ctx context.Context, sb *record.Sandbox, pod *manifests.Pod) error {
	if err := checkOverhead(sb, pod); err != nil {
		return err
	}
	if err := r.Cgroups.set(sb.Meta.Cgroup, limits.ForPod(sb.Loaded(pod), r.Host)); err != nil {
		return err
	}
	next, err := r.Records.UpdateSandbox(ctx, sb.ID, func(s *record.Sandbox) {
		s.Meta.ResourcesHash, s.Meta.Resources = podhash.PodResources(pod.Object), limits.InEffect(s.Loaded(pod), r.Host)
	}, record.ExtSandbox)
	if err != nil {
		return err
	}
	sized := *next
	sized.Pod = pod
	return r.weighClasses(&sized)
}

// WidenPod makes the limits of a pod's cgroup large enough for both the current and the new resources of its containers.
func (r *Pods) WidenPod(sb *record.Sandbox, pod *manifests.Pod) error {
	if sb.Meta.ResourcesHash == podhash.PodResources(pod.Object) {
		return nil
	}
	want, has := limits.ForPod(sb.Loaded(pod), r.Host), r.Cgroups.Values(sb.Meta.Cgroup)
	if has.Quota != nil && has.Period > 0 {
		*has.Quota = *has.Quota * int64(want.Period) / int64(has.Period)
	}
	return r.Cgroups.set(sb.Meta.Cgroup, want.Widen(has))
}

// resizeContainer changes the cgroup of a running container.
func (r *Pods) resizeContainer(ctx context.Context, rec *record.Container, pod *corev1.Pod) error {
	own := exclusive(rec)
	if n := limits.WholeCPUs(pod, rec.Meta.Name); r.Host.Enforce.StaticCPUs && n != len(own) {
		return fmt.Errorf("it has %d exclusive processors, which cannot be changed while it runs: set resizePolicy RestartContainer for cpu", len(own))
	}
	in := spec.Input{Pod: pod, Container: rec.Meta.Name, Host: r.Host}
	in.CPUs, in.ExclusiveCPUs = r.CpusOf(own)
	res, err := limits.Update(in)
	if err != nil {
		return err
	}
	if limit := *res.Memory.Limit; limit > 0 && r.Cgroups.Controllers == nil {
		if err := makeRoom(filepath.Join(UnifiedRoot, r.CgroupOf(rec)), limit); err != nil {
			return err
		}
	}
	data, err := typeurl.MarshalAnyToProto(res)
	if err != nil {
		return err
	}
	_, err = r.Client.TaskService().Update(ctx, &tasksapi.UpdateTaskRequest{ContainerID: rec.ID, Resources: data})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil // it has ended
	}
	if root, ok := r.Cgroups.Controllers["memory"]; ok {
		return inUse(err, &cgroupWriter{dir: filepath.Join(root, r.CgroupOf(rec))}, res.Memory.Limit)
	}
	return err
}

// CgroupOf returns the cgroup of a container.
func (r *Pods) CgroupOf(rec *record.Container) string {
	return r.Cgroups.Container(rec.Meta.Cgroup, rec.ID)
}

// RemovePodCgroup removes the cgroup of a sandbox unless another sandbox shares it, and updates the weight of its class.
func (r *Pods) RemovePodCgroup(ctx context.Context, rec *record.Sandbox) error {
	if rec.Meta.Cgroup == "" {
		return nil // the record is damaged; CleanCgroups removes it
	}
	for _, o := range r.Index.List() {
		if o.ID != rec.ID && o.Meta.Cgroup == rec.Meta.Cgroup {
			return nil
		}
	}
	if err := r.Cgroups.Remove(ctx, rec.Meta.Cgroup); err != nil {
		return err
	}
	if rec.Meta.QOSClass != corev1.PodQOSBurstable {
		return nil
	}
	return r.weighClasses(nil)
}

// CleanCgroups removes cgroups of unknown pods.
func (r *Pods) CleanCgroups() error {
	known := map[string]bool{}
	for _, s := range r.Index.List() {
		known[s.Meta.Cgroup] = true
	}
	for _, c := range r.Index.All() {
		known[filepath.Dir(r.CgroupOf(c))] = true
	}
	var errs []error
	for _, path := range r.Cgroups.Pods() {
		if !known[path] {
			errs = append(errs, r.Cgroups.RemoveEmpty(path))
		}
	}
	return errors.Join(errs...)
}
