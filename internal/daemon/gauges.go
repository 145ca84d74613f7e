package daemon

import (
	"context"
	"errors"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/manifests"
	"monopod/node/stats"
	"monopod/runner"
	"monopod/runner/spec"
)

// measured is what reading the use of resources needs of a runtime.
type measured interface {
	// Places returns where the kernel counts what each pod uses.
	Places(ctx context.Context) ([]runner.Place, error)
	// MeasureDisk walks over what a pod has on disk.
	MeasureDisk(ctx context.Context, key manifests.Key) (runner.DiskSizes, error)
	// ContainerdVersion is that of a containerd that runs for itself; empty: it is inside this process, or has not said it.
	ContainerdVersion() string
}

// gauges is stats.Source on the runtime that is open at the moment, and knows its version.
type gauges struct {
	runtime atomic.Pointer[measured]
}

// errNoRuntime says that there is nobody to ask for the pods.
var errNoRuntime = errors.New("containers cannot be seen now")

// attach makes a runtime the one that is asked, until the returned function is called.
func (g *gauges) attach(rt measured) (detach func()) {
	g.runtime.Store(&rt)
	return func() { g.runtime.Store(nil) }
}

// containerdVersion is that of the runtime; empty also while none is open.
func (g *gauges) containerdVersion() string {
	if rt := g.runtime.Load(); rt != nil {
		return (*rt).ContainerdVersion()
	}
	return ""
}

// Places implements stats.Source.
func (g *gauges) Places(ctx context.Context) ([]stats.Place, error) {
	rt := g.runtime.Load()
	if rt == nil {
		return nil, errNoRuntime
	}
	places, err := (*rt).Places(ctx)
	all := make([]stats.Place, 0, len(places))
	for _, p := range places {
		to := stats.Place{Key: p.Key, UID: p.UID, Created: p.CreatedAt, Cgroup: p.Cgroup, HostNetwork: p.HostNetwork}
		for _, c := range p.Containers {
			to.Containers = append(to.Containers, stats.ContainerPlace{
				Name: c.Name, ID: c.ID, Image: c.Image, Restarts: c.RestartCount, Started: c.StartedAt, Cgroup: c.Cgroup,
			})
		}
		all = append(all, to)
	}
	return all, err
}

// MeasureDisk implements stats.Source.
func (g *gauges) MeasureDisk(ctx context.Context, p stats.Place) (stats.PodDisk, error) {
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

// newCollector returns what reads the use of resources.
func newCollector(cfg *config.Config, m Machine, source stats.Source) (*stats.Collector, error) {
	find := stats.FindHierarchies
	if m.Cgroups != nil {
		find = m.Cgroups
	}
	h, err := find()
	if err != nil {
		return nil, err
	}
	pods := spec.Cgroups{Root: cfg.CgroupRoot, Driver: spec.CgroupDriver(cfg.CgroupDriver)}.Class(corev1.PodQOSGuaranteed)
	return stats.New(stats.Config{Hierarchies: h, PodsCgroup: pods, Source: source}), nil
}
