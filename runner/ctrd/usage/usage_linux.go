// Package usage measures what pods use of the disk, and says in which cgroups the kernel counts the rest. It must not evict anything; it
// wakes the worker of a pod that exceeds a limit.
package usage

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/pause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/taskwatch"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/volumes"
)

// What pods use of the disk is measured by one goroutine, by walking: no kernel tells when a directory has grown. Only
// pods that have a limit are walked, and of them only what counts for it; without any such pod it sleeps. It waits
// between two rounds for the period, but at least nine times as long as the last one took: nobody's disk is kept busy.

// DefaultUsagePeriod is kubelet's between two looks for pods to evict.
const DefaultUsagePeriod = 10 * time.Second

// Results are the latest measurements, by sandbox.
type Results struct {
	wake chan struct{}

	mu   sync.Mutex
	used map[string]*runner.DiskUsage
}

// NewResults returns Results without any.
func NewResults() *Results { return &Results{wake: make(chan struct{}, 1)} }

// Of returns what a sandbox uses; nil: it is not known.
func (u *Results) Of(sandbox string) *runner.DiskUsage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.used[sandbox]
}

func (u *Results) set(used map[string]*runner.DiskUsage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used = used
}

// Limited tells that there may be a pod to measure.
func (u *Results) Limited(pod *manifests.Pod) {
	if !runner.LimitsDisk(&pod.Object.Spec) {
		return
	}
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// Meter measures what pods use of the disk, and says where the kernel counts the rest.
type Meter struct {
	Client      *client.Client
	Index       *record.Index
	Dirs        layout.Dirs
	PodCgroups  *cgroup.Pods
	Snapshotter string
	BootID      string
	UsagePeriod time.Duration
	Watch       *taskwatch.Watchers
	// WithNamespace puts the containerd namespace on a context.
	WithNamespace func(context.Context) context.Context
	Log           *slog.Logger

	// Usage is what was measured last.
	Usage *Results
}

// MeasureUsage measures until ctx ends.
func (r *Meter) MeasureUsage(ctx context.Context) {
	for took := time.Duration(0); ; {
		if len(r.limitedSandboxes()) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.Usage.wake:
			}
		}
		if !pause.For(ctx, max(r.UsagePeriod, 9*took)) {
			return
		}
		began := time.Now()
		r.measureAll(ctx)
		took = time.Since(began)
	}
}

// limitedSandboxes are those whose pod has a limit and has not failed or ended.
func (r *Meter) limitedSandboxes() []*record.Sandbox {
	var limited []*record.Sandbox
	for _, rec := range r.Index.List() {
		l := &rec.Meta
		if l.State == record.Active && l.Failed == "" && l.BootID == r.BootID && runner.LimitsDisk(&rec.Pod.Object.Spec) {
			limited = append(limited, rec)
		}
	}
	return limited
}

// measureAll measures all pods that have a limit, and wakes the workers of those that exceed one.
func (r *Meter) measureAll(ctx context.Context) {
	used := map[string]*runner.DiskUsage{}
	for _, rec := range r.limitedSandboxes() {
		u, err := r.measure(ctx, rec)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.Log.Warn("measure use of the disk", "pod", rec.Meta.Key.String(), "err", err)
			u = r.Usage.Of(rec.ID)
		}
		used[rec.ID] = u
	}
	r.Usage.set(used)
	for id, u := range used {
		if rec := r.Index.SandboxByID(id); rec != nil && runner.Overuse(&rec.Pod.Object.Spec, u).Kind != "" {
			r.Watch.Notify(rec.Meta.Key)
		}
	}
}

// measure returns what counts for the limits of a pod.
func (r *Meter) measure(ctx context.Context, rec *record.Sandbox) (*runner.DiskUsage, error) {
	spec := &rec.Pod.Object.Spec
	all := manifests.AggregateLimits(spec)
	local := all.StorageEphemeral().Sign() > 0
	u := &runner.DiskUsage{EmptyDirs: map[string]int64{}, Containers: map[string]int64{}}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault || !local && v.EmptyDir.SizeLimit == nil {
			continue
		}
		size, err := volumes.SizeOf(ctx, r.Dirs.EmptyDir(rec.Meta.UID, v.Name))
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.Name, err)
		}
		u.EmptyDirs[v.Name] = size.Bytes
	}
	hidden, err := r.unnamedFiles(ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("files without a name: %w", err)
	}
	for name, size := range hidden.emptyDirs {
		if _, measured := u.EmptyDirs[name]; measured {
			u.EmptyDirs[name] += size.Bytes
		}
	}
	if !local {
		return u, nil
	}
	for name, size := range hidden.containers {
		u.Containers[name] += size.Bytes
	}
	for _, c := range r.Index.OfUID(rec.Meta.UID) {
		layer, err := r.layerSize(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", c.Meta.Name, err)
		}
		u.Containers[c.Meta.Name] += layer.Bytes
	}
	logs, err := r.logSizes(ctx, rec)
	for name, size := range logs {
		u.Containers[name] += size.Bytes
	}
	if err != nil {
		return nil, err
	}
	others, err := r.otherSizes(ctx, rec)
	u.Others = others.Bytes
	return u, err
}

// logSizes are those of all log files of a pod, by container: also of containers that an edit has taken out.
func (r *Meter) logSizes(ctx context.Context, rec *record.Sandbox) (map[string]runner.Size, error) {
	sizes := map[string]runner.Size{}
	for _, name := range trees.Names(r.Dirs.PodLogDir(rec.Meta.Key, rec.Meta.UID)) {
		size, err := volumes.SizeOf(ctx, r.Dirs.ContainerLogDir(rec.Meta.Key, rec.Meta.UID, name))
		if err != nil {
			return sizes, fmt.Errorf("logs of container %s: %w", name, err)
		}
		sizes[name] = runner.Size(size)
	}
	return sizes, nil
}

// otherSizes returns what a pod has on disk besides volumes, layers and logs: copies of termination messages, and emptyDirs that an
// edit removed from the manifest, to which containers may still write. Volumes of claims do not count.
func (r *Meter) otherSizes(ctx context.Context, rec *record.Sandbox) (runner.Size, error) {
	uid := rec.Meta.UID
	files, err := volumes.SizeWithout(ctx, r.Dirs.PodDir(uid), "volumes", "image-volumes")
	if err != nil {
		return runner.Size{}, err
	}
	var present []string
	for i := range rec.Pod.Object.Spec.Volumes {
		if v := &rec.Pod.Object.Spec.Volumes[i]; v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault {
			present = append(present, v.Name)
		}
	}
	removed, err := volumes.SizeWithout(ctx, filepath.Dir(r.Dirs.EmptyDir(uid, "any")), present...)
	return runner.Size{Bytes: files.Bytes + removed.Bytes, Inodes: files.Inodes + removed.Inodes}, err
}
