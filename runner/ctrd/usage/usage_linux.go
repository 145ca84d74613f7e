// Package usage measures the disk usage of pods, and returns the cgroups in which the kernel accounts the rest. It must not evict
// anything; it wakes the worker of a pod that exceeds a limit.
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

// One goroutine measures disk usage by walking directories, because the kernel does not report when one grows. It walks only pods
// with a limit, and only what counts for it; without such a pod it sleeps. It waits for the interval between two rounds, and at
// least nine times as long as a round took, to keep the disk free for others.

// DefaultUsagePeriod is the interval of the kubelet's eviction check.
const DefaultUsagePeriod = 10 * time.Second

// Results are the latest measurements, by sandbox.
type Results struct {
	wake chan struct{}

	mu   sync.Mutex
	used map[string]*runner.DiskUsage
}

// NewResults returns empty Results.
func NewResults() *Results { return &Results{wake: make(chan struct{}, 1)} }

// Of returns the usage of a sandbox; nil if it is not known.
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

// Limited wakes the measurement if a pod has a limit.
func (u *Results) Limited(pod *manifests.Pod) {
	if !runner.LimitsDisk(&pod.Object.Spec) {
		return
	}
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// Meter measures the disk usage of pods, and returns their cgroups.
type Meter struct {
	Client      *client.Client
	Index       *record.Index
	Dirs        layout.Dirs
	PodCgroups  *cgroup.Pods
	Snapshotter string
	BootID      string
	UsagePeriod time.Duration
	Watch       *taskwatch.Watchers
	// WithNamespace adds the containerd namespace to a context.
	WithNamespace func(context.Context) context.Context
	Log           *slog.Logger

	// Usage holds the latest measurements.
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

// limitedSandboxes returns the sandboxes of pods with a limit that have neither failed nor ended.
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
			r.Log.Warn("measure disk usage", "pod", rec.Meta.Key.String(), "err", err)
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

// measure returns the usage of a pod that counts for its limits.
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

// logSizes returns the size of all log files of a pod by container, including containers that an edit removed.
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

// otherSizes returns what a pod has on disk besides volumes, layers and logs: copies of termination messages, volumes of images whose
// containers are not created yet, and emptyDirs that an edit removed from the manifest, to which containers may still write. Volumes of
// claims do not count.
func (r *Meter) otherSizes(ctx context.Context, rec *record.Sandbox) (runner.Size, error) {
	uid := rec.Meta.UID
	files, err := volumes.SizeWithout(ctx, r.Dirs.PodDir(uid), "volumes", "image-volumes")
	if err != nil {
		return runner.Size{}, err
	}
	var created []string
	for _, c := range r.Index.OfUID(uid) {
		created = append(created, c.ID)
	}
	copied, err := volumes.SizeWithout(ctx, r.Dirs.ImageVolumeDir(uid, ""), created...)
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
	return runner.Size{Bytes: files.Bytes + copied.Bytes + removed.Bytes, Inodes: files.Inodes + copied.Inodes + removed.Inodes}, err
}
