package state

import (
	"context"
	"log/slog"
	"testing"

	"golang.org/x/sync/errgroup"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests/decode"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
)

func TestAPodOnItsWayToThePoolIsNotSeenYet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	pods, err := decode.Pods("/m/web.yaml", []byte(daemontest.PodYAML("web", runtimetest.ScriptServe)), decode.Options{Source: config.SourceFile})
	if err != nil {
		t.Fatal(err)
	}
	b := New(&Changes{}, rollout.New(rollout.Config{Log: slog.New(slog.DiscardHandler), Clock: boottime.Now}))
	pool := pool.New(runtimetest.NewFake(), pool.Config{NodeName: "node"})
	b.Publish(model.Desired{Pods: pods})
	var all errgroup.Group
	all.Go(func() error { return pool.Run(ctx) })
	all.Go(func() error { return b.Attach(ctx, pool, nil) })
	t.Cleanup(func() {
		cancel()
		_ = all.Wait()
	})
	soon(t, "the runtime's pods are known", func() bool { p, _ := b.running(); return p != nil && pool.Seen() })
	if b.CheckObserved(ctx) == nil {
		t.Error("a pod counts as seen that the pool has not heard of")
	}
	all.Go(func() error { return b.Rollouts.Run(ctx) })
	soon(t, "the pod is looked at", func() bool { return b.CheckObserved(ctx) == nil })
}
