package counters

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

// Measured is what reading the use of resources needs of a runtime.
type Measured interface {
	// Places returns where the kernel counts what each pod uses.
	Places(ctx context.Context) ([]model.Place, error)
	// MeasureDisk walks over what a pod has on disk.
	MeasureDisk(ctx context.Context, key manifests.Key) (runner.DiskSizes, error)
	// ContainerdVersion is that of a containerd that runs for itself; empty: it is inside this process, or has not said it.
	ContainerdVersion() string
}

// Gauges is stats.Source on the runtime that is open at the moment, and knows its version.
type Gauges struct {
	Runtime atomic.Pointer[Measured]
}

// errNoRuntime says that there is nobody to ask for the pods.
var errNoRuntime = errors.New("containers cannot be seen now")

// Attach makes a runtime the one that is asked, until the returned function is called.
func (g *Gauges) Attach(rt Measured) (detach func()) {
	g.Runtime.Store(&rt)
	return func() { g.Runtime.Store(nil) }
}

// ContainerdVersion is that of the runtime; empty also while none is open.
func (g *Gauges) ContainerdVersion() string {
	if rt := g.Runtime.Load(); rt != nil {
		return (*rt).ContainerdVersion()
	}
	return ""
}

// Places implements stats.Source.
func (g *Gauges) Places(ctx context.Context) ([]model.Place, error) {
	rt := g.Runtime.Load()
	if rt == nil {
		return nil, errNoRuntime
	}
	return (*rt).Places(ctx)
}

// MeasureDisk implements stats.Source.
func (g *Gauges) MeasureDisk(ctx context.Context, p model.Place) (stats.PodDisk, error) {
	rt := g.Runtime.Load()
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

// NewCollector returns what reads the use of resources.
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

// Running returns the pods that have a container that runs, as the runtime knows them.
func (g *Gauges) Running(ctx context.Context) ([]corev1.Pod, error) {
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
