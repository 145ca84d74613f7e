package state

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/runner"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
)

// gated is a runtime whose pods cannot be looked at until the gate is open.
type gated struct {
	*runtimetest.Fake
	gate chan struct{}
}

func (g gated) Observe(ctx context.Context, key manifests.Key) (runner.PodState, error) {
	select {
	case <-g.gate:
		return g.Fake.Observe(ctx, key)
	case <-ctx.Done():
		return runner.PodState{}, ctx.Err()
	}
}

// phaseOf returns the phase of a pod that the pool has told of; empty: it has not.
func phaseOf(t *testing.T, b *Store, name string) (phase corev1.PodPhase, why string) {
	t.Helper()
	views, err := b.Pods()
	if err != nil && !errors.Is(err, node.ErrStarting) {
		t.Fatal(err)
	}
	for _, v := range views {
		if v.Pod.Name == name && v.Origin.File != "" {
			return v.Pod.Status.Phase, v.Why
		}
	}
	return "", ""
}

// soon waits for a condition that nothing announces.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(daemontest.Patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so in time: %s", what)
		}
	}
}

func TestAPodThatWasThereIsUnknownUntilItIsLookedAt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rt := gated{runtimetest.NewFake(), make(chan struct{})}
	pods, err := decode.Pods("/m/two.yaml", []byte(daemontest.PodYAML("old", runtimetest.ScriptServe)+"---\n"+daemontest.PodYAML("new", runtimetest.ScriptServe)), decode.Options{Source: config.SourceFile})
	if err != nil {
		t.Fatal(err)
	}
	b := New(&Changes{}, rollout.New(rollout.Config{Log: slog.New(slog.DiscardHandler), Clock: boottime.Now}))
	pool := pool.New(rt, pool.Config{NodeName: "node"})
	var all errgroup.Group
	all.Go(func() error { return b.Rollouts.Run(ctx) })
	all.Go(func() error { return pool.Run(ctx) })
	all.Go(func() error { return b.Attach(ctx, pool, []manifests.Key{{Namespace: "default", Name: "old"}}) })
	t.Cleanup(func() {
		cancel()
		_ = all.Wait()
	})
	b.Publish(model.Desired{Pods: pods})
	soon(t, "the pool has heard of both", func() bool {
		was, _ := phaseOf(t, b, "old")
		is, _ := phaseOf(t, b, "new")
		return was != "" && is != ""
	})
	if phase, why := phaseOf(t, b, "old"); phase != corev1.PodUnknown || why != NotLookedAt {
		t.Errorf("what may run is shown as %s: %s", phase, why)
	}
	if phase, _ := phaseOf(t, b, "new"); phase != corev1.PodPending {
		t.Errorf("a new pod is shown as %s", phase)
	}
	close(rt.gate)
	soon(t, "they run", func() bool {
		was, _ := phaseOf(t, b, "old")
		is, _ := phaseOf(t, b, "new")
		return was == corev1.PodRunning && is == corev1.PodRunning
	})
}
