package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/events"
	"monopod/node/stats"
	"monopod/runner/runtimetest"
)

// newTestCore returns the parts of a daemon whose runtime is the given one. None of them runs.
func newTestCore(t testing.TB, rt *runtimetest.Fake) *core {
	t.Helper()
	dir := t.TempDir()
	cfg := &config.Loaded{Config: config.Config{NodeName: "node", RootDirectory: dir, StateDirectory: dir + "/state", PodLogsDir: dir + "/logs"}}
	machine := Machine{
		Cgroups: func() (stats.Hierarchies, error) { return stats.Hierarchies{}, nil }, Addresses: func() ([]string, error) { return nil, nil }, Release: func() {},
		Open: func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
			return &daemontest.FakeRuntime{Fake: rt}, nil
		},
	}
	c, err := newCore(cfg, Deps{Log: slog.New(slog.DiscardHandler), Machine: machine})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs the rollouts and the runtime of a core in a synctest bubble, until the test ends.
func start(t *testing.T, c *core, m *machineParts) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all errgroup.Group
	all.Go(func() error { return c.state.Rollouts.Run(ctx) })
	all.Go(func() error { return newRuntimeLoop(c, m).run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

// publish makes pods the only desired ones, and waits until the core is idle.
func publish(c *core, pods ...*manifests.Pod) {
	c.state.Publish(model.Desired{Pods: pods, Order: []string{config.SourceFile}, Reported: map[string]bool{config.SourceFile: true}})
	synctest.Wait()
}

// servingPod returns a pod that runs until it is stopped.
func servingPod(name string) *manifests.Pod {
	return runtimetest.NewPod(name, runtimetest.NewContainer("c", runtimetest.ScriptServe))
}

// phases returns the pods that clients see with their phases and reasons, sorted as the pool has them.
func phases(c *core) string {
	views, err := c.state.Pods()
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, v := range views {
		all = append(all, strings.TrimSpace(v.Pod.Name+" "+string(v.Pod.Status.Phase)+" "+v.Pod.Status.Reason))
	}
	return strings.Join(all, ", ")
}

// reasons returns the reasons of the recorded events of the node, and how often each happened.
func reasons(c *core) string {
	var all []string
	for _, e := range c.events.List(events.Filter{Kind: "Node"}) {
		all = append(all, fmt.Sprint(e.Reason, " ", e.Count))
	}
	return strings.Join(all, ", ")
}

// shortDir returns a directory for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
