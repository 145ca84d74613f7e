package daemon

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/manifests"
	"monopod/node/admission"
	"monopod/node/pressure"
	"monopod/node/stats"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/pool"
	"monopod/runner/spec"
	"monopod/runner/spec/limits"
)

// evictor carries out what the pressure monitor decides: it implements pressure.Node, and holds pods back while the node is under pressure.
// A nil evictor does nothing.
type evictor struct {
	*core
	monitor *pressure.Monitor

	mu sync.Mutex
	// pool and rt are guarded by mu, and nil while no runtime is open.
	pool *pool.Pool
	rt   containers.Runtime
}

// newEvictor returns nil if no eviction thresholds are configured.
func newEvictor(c *core, limits limits.AllPods) (*evictor, error) {
	cfg, err := c.cfg.Pressure(limits.Memory > 0)
	if err != nil || len(cfg.Thresholds) == 0 {
		return nil, err
	}
	e := &evictor{core: c}
	sensors := &pressure.Kernel{NodeFs: c.cfg.RootDirectory, ImageFs: imageDirectory(&c.cfg.Config)}
	if limits.Memory > 0 {
		sensors.PodsMemory = memoryCgroup(spec.Cgroups{Root: c.cfg.CgroupRoot, Driver: spec.CgroupDriver(c.cfg.CgroupDriver)}.Class(corev1.PodQOSGuaranteed))
	}
	e.monitor = pressure.New(cfg, sensors, e, c.deps.Log, time.Now)
	return e, nil
}

// imageDirectory returns the directory of the images.
func imageDirectory(cfg *config.Config) string {
	if cfg.ContainerRuntimeEndpoint == "" {
		return cfg.RootDirectory
	}
	return "/var/lib/containerd"
}

// memoryCgroup returns the directory in which the kernel counts the memory of a cgroup.
func memoryCgroup(cgroup string) string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return filepath.Join(root, cgroup)
	}
	return filepath.Join(root, "memory", cgroup)
}

// attach evicts pods of a pool until the returned function is called.
func (e *evictor) attach(pool *pool.Pool, rt containers.Runtime) (detach func()) {
	if e == nil {
		return func() {}
	}
	e.mu.Lock()
	e.pool, e.rt = pool, rt
	e.mu.Unlock()
	e.hold()
	return func() {
		e.mu.Lock()
		e.pool, e.rt = nil, nil
		e.mu.Unlock()
	}
}

func (e *evictor) current() (*pool.Pool, containers.Runtime) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pool, e.rt
}

// conditions returns the pressure conditions of the node.
func (e *evictor) conditions() []corev1.NodeCondition {
	if e == nil {
		return nil
	}
	return e.monitor.Conditions()
}

// run monitors until ctx ends.
func (e *evictor) run(ctx context.Context) {
	changed, cancel := e.monitor.Subscribe()
	defer cancel()
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() {
		if err := e.monitor.Run(ctx); err != nil {
			e.deps.Log.Error("resource pressure is not monitored", "err", err)
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			e.hold()
			e.nodeChanged.Send()
		}
	}
}

// hold keeps pods from starting while the node is under pressure.
func (e *evictor) hold() {
	pool, _ := e.current()
	if pool == nil {
		return
	}
	now := e.monitor.Pressures()
	if len(now) == 0 {
		pool.Barrier(nil)
		return
	}
	pool.Barrier(func(p *manifests.Pod) *runner.Held {
		return admission.UnderPressure(p, now)
	})
}

// Pods implements pressure.Node.
func (e *evictor) Pods(ctx context.Context, disks bool) ([]pressure.Pod, error) {
	statuses, err := e.state.Statuses()
	if err != nil {
		return nil, err
	}
	used, err := e.stats.Pods(ctx, stats.Options{Disks: disks, Recent: true})
	if err != nil {
		return nil, err
	}
	byUID := map[string]*stats.Pod{}
	for i := range used {
		byUID[used[i].UID] = &used[i]
	}
	var all []pressure.Pod
	for _, st := range statuses {
		if u := byUID[string(st.Pod.UID)]; u != nil {
			all = append(all, pressure.NewPod(st.Pod, u, st.Origin.Source == "" || e.state.Spaces.Of(st.Origin.Source) == manifests.LocalSpace))
		}
	}
	return all, nil
}

// Evict implements pressure.Node.
func (e *evictor) Evict(key manifests.Key, o pressure.Order) {
	if pool, _ := e.current(); pool != nil {
		e.tally.Evicted(string(o.Signal))
		pool.Evict(key, plan.Eviction{UID: o.UID, Reason: runner.ReasonEvicted, Message: o.Message, Cause: cause.Cause{Kind: cause.Evicted, Resource: o.Signal.Resource()}, Grace: o.Grace})
	}
}

// ReclaimContainers implements pressure.Node.
func (e *evictor) ReclaimContainers(ctx context.Context) (int64, error) {
	if _, rt := e.current(); rt != nil {
		return rt.ReclaimContainers(ctx)
	}
	return 0, nil
}

// ReclaimImages implements pressure.Node.
func (e *evictor) ReclaimImages(ctx context.Context, bytes int64) (int64, error) {
	return e.images.ReclaimImages(ctx, bytes)
}

// Tell implements pressure.Node.
func (e *evictor) Tell(eventType, reason, message string) { e.events.Node(eventType, reason, message) }
