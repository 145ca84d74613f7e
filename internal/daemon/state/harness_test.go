package state

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
)

// newStore returns a Store without a runtime, whose rollouts have no files.
func newStore() *Store {
	changes := &Changes{}
	return New(changes, rollout.New(rollout.Config{
		Log: slog.New(slog.DiscardHandler), Notify: changes.Notify, Clock: func() boottime.Moment { return boottime.Moment{Boot: "b", Since: time.Hour} },
	}))
}

// open attaches a pool on a runtime to a Store in a synctest bubble, until the returned function is called or the test ends.
func open(t *testing.T, s *Store, rt *runtimetest.Fake, observers ...func(pool.Change)) (p *pool.Pool, stop func()) {
	t.Helper()
	existing, err := rt.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p = pool.New(rt, pool.Config{NodeName: "node"})
	ctx, cancel := context.WithCancel(t.Context())
	var all errgroup.Group
	all.Go(func() error { return s.Rollouts.Run(ctx) })
	all.Go(func() error { return p.Run(ctx) })
	all.Go(func() error { return s.Attach(ctx, p, existing, observers...) })
	stop = func() {
		cancel()
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	synctest.Wait()
	return p, stop
}

// serving returns pods that run until they are stopped.
func serving(names ...string) (all []*manifests.Pod) {
	for _, name := range names {
		all = append(all, runtimetest.NewPod(name, runtimetest.NewContainer("c", runtimetest.ScriptServe)))
	}
	return all
}

// fromFiles returns a desired state whose only source has been read.
func fromFiles(pods ...*manifests.Pod) model.Desired {
	return model.Desired{Pods: pods, Order: []string{config.SourceFile}, Reported: map[string]bool{config.SourceFile: true}}
}
