package daemon

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/config"
	"monopod/manifests"
	"monopod/node/admission"
	"monopod/node/pressure"
	"monopod/node/stats"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/pool"
)

// strain keeps the machine from running out of memory, disk and process ids: it is pressure.Node, and keeps pods from starting while there
// is too little.
type strain struct {
	app     *App
	monitor *pressure.Monitor

	mu sync.Mutex
	// All below is guarded by mu; they are nil while no runtime is open.
	pool *pool.Pool
	rt   Runtime
}

// imageDirectory is where images are.
func imageDirectory(cfg *config.Config) string {
	if cfg.ContainerRuntimeEndpoint == "" {
		return cfg.RootDirectory
	}
	return "/var/lib/containerd"
}

// memoryOf is the directory in which the kernel counts the memory of a cgroup.
func memoryOf(cgroup string) string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return filepath.Join(root, cgroup)
	}
	return filepath.Join(root, "memory", cgroup)
}

// attach makes a pool obey, until the returned function is called.
func (s *strain) attach(pool *pool.Pool, rt Runtime) (detach func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	s.pool, s.rt = pool, rt
	s.mu.Unlock()
	s.bar()
	return func() {
		s.mu.Lock()
		s.pool, s.rt = nil, nil
		s.mu.Unlock()
	}
}

func (s *strain) current() (*pool.Pool, Runtime) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool, s.rt
}

// conditions are those of the node; none where nobody watches.
func (s *strain) conditions() []corev1.NodeCondition {
	if s == nil {
		return nil
	}
	return s.monitor.Conditions()
}

// run watches until ctx ends. It has looked once before anything starts.
func (s *strain) run(ctx context.Context) {
	changed, cancel := s.monitor.Subscribe()
	defer cancel()
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() {
		if err := s.monitor.Run(ctx); err != nil {
			s.app.Log.Error("what the machine is short of is not watched", "err", err)
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			s.bar()
			s.app.tellNode()
		}
	}
}

// bar keeps pods from starting while the machine is short of something.
func (s *strain) bar() {
	pool, _ := s.current()
	if pool == nil {
		return
	}
	now := s.monitor.Pressures()
	if len(now) == 0 {
		pool.Barrier(nil)
		return
	}
	pool.Barrier(func(p *manifests.Pod) *runner.Held {
		return admission.UnderPressure(p, now)
	})
}

// Pods implements pressure.Node.
func (s *strain) Pods(ctx context.Context, disks bool) ([]pressure.Pod, error) {
	statuses, err := s.app.Board.Statuses()
	if err != nil {
		return nil, err
	}
	used, err := s.app.stats.Pods(ctx, stats.Options{Disks: disks, Recent: true})
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
			all = append(all, pressure.NewPod(st.Pod, u))
		}
	}
	return all, nil
}

// Evict implements pressure.Node.
func (s *strain) Evict(key manifests.Key, o pressure.Order) {
	if pool, _ := s.current(); pool != nil {
		s.app.tally.Evicted(string(o.Signal))
		pool.Evict(key, plan.Eviction{UID: o.UID, Reason: runner.ReasonEvicted, Message: o.Message, Cause: cause.Cause{Kind: cause.Evicted, Resource: o.Signal.Resource()}, Grace: o.Grace})
	}
}

// ReclaimContainers implements pressure.Node.
func (s *strain) ReclaimContainers(ctx context.Context) (int64, error) {
	if _, rt := s.current(); rt != nil {
		return rt.ReclaimContainers(ctx)
	}
	return 0, nil
}

// ReclaimImages implements pressure.Node.
func (s *strain) ReclaimImages(ctx context.Context, bytes int64) (int64, error) {
	return s.app.images.ReclaimImages(ctx, bytes)
}

// Tell implements pressure.Node.
func (s *strain) Tell(eventType, reason, message string) { s.app.tell(eventType, reason, message) }
