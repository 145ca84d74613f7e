package telemetry

import (
	"context"
	"errors"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/stats"
	"monopod/runner"
	"monopod/runner/spec"
)

// Measured is a runtime that tells where to measure the resource usage of pods.
type Measured interface {
	// Places returns the cgroups and network namespaces of pods.
	Places(ctx context.Context) ([]model.Place, error)
	// MeasureDisk walks over the files of a pod.
	MeasureDisk(ctx context.Context, key manifests.Key) (runner.DiskSizes, error)
	// ContainerdVersion returns the version of an external containerd; empty: it is embedded, or has not answered yet.
	ContainerdVersion() string
}

// Usage is a stats.Source that measures the pods of the open runtime. The zero value has none.
type Usage struct {
	runtime atomic.Pointer[Measured]
}

// errNoRuntime means that no runtime is open.
var errNoRuntime = errors.New("the runtime does not respond")

// Attach measures the pods of a runtime until the returned function is called.
func (g *Usage) Attach(rt Measured) (detach func()) {
	g.runtime.Store(&rt)
	return func() { g.runtime.Store(nil) }
}

// ContainerdVersion returns that of the runtime; empty also while none is open.
func (g *Usage) ContainerdVersion() string {
	if rt := g.runtime.Load(); rt != nil {
		return (*rt).ContainerdVersion()
	}
	return ""
}

// Places implements stats.Source.
func (g *Usage) Places(ctx context.Context) ([]model.Place, error) {
	rt := g.runtime.Load()
	if rt == nil {
		return nil, errNoRuntime
	}
	return (*rt).Places(ctx)
}

// MeasureDisk implements stats.Source.
func (g *Usage) MeasureDisk(ctx context.Context, p model.Place) (stats.PodDisk, error) {
	rt := g.runtime.Load()
	if rt == nil {
		return stats.PodDisk{}, errNoRuntime
	}
	sizes, err := (*rt).MeasureDisk(ctx, p.Key)
	return stats.PodDisk{
		Volumes: diskUses(sizes.Volumes), Memory: sizes.InMemory, Layers: diskUses(sizes.Layers), Logs: diskUses(sizes.Logs), Others: diskUse(sizes.Others),
	}, err
}

func diskUses(sizes map[string]runner.Size) map[string]stats.DiskUse {
	all := make(map[string]stats.DiskUse, len(sizes))
	for name, s := range sizes {
		all[name] = diskUse(s)
	}
	return all
}

func diskUse(s runner.Size) stats.DiskUse {
	return stats.DiskUse{Bytes: uint64(max(0, s.Bytes)), Inodes: uint64(max(0, s.Inodes))}
}

// NewCollector returns a collector of resource usage. cgroups finds the mounted hierarchies; nil: stats.FindHierarchies.
func NewCollector(cfg *config.Config, cgroups func() (stats.Hierarchies, error), source stats.Source) (*stats.Collector, error) {
	find := stats.FindHierarchies
	if cgroups != nil {
		find = cgroups
	}
	h, err := find()
	if err != nil {
		return nil, err
	}
	pods := spec.Cgroups{Root: cfg.CgroupRoot, Driver: spec.CgroupDriver(cfg.CgroupDriver)}.Class(corev1.PodQOSGuaranteed)
	return stats.New(stats.Config{Hierarchies: h, PodsCgroup: pods, Source: source}), nil
}

// Running returns the pods with running containers, as far as the runtime knows them: names, images, UIDs.
func (g *Usage) Running(ctx context.Context) ([]corev1.Pod, error) {
	places, err := g.Places(ctx)
	if err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for _, p := range places {
		if len(p.Containers) == 0 {
			continue
		}
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID), CreationTimestamp: metav1.NewTime(p.Created)}}
		for _, c := range p.Containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
		}
		pods = append(pods, pod)
	}
	return pods, nil
}
