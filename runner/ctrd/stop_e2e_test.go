//go:build e2e

package ctrd

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"

	"monopod/runner"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/record"
)

// forgetful is a store of containers that goes away after some changes, as a containerd does that is killed.
type forgetful struct {
	containers.Store
	left int
}

func (f *forgetful) Update(ctx context.Context, c containers.Container, fields ...string) (containers.Container, error) {
	if f.left--; f.left < 0 {
		return c, errdefs.ErrUnavailable
	}
	return f.Store.Update(ctx, c, fields...)
}

// TestAStopThatWasCutOffIsNoEndOfItsOwn stops containerd and the agent while a container is being stopped. Afterwards the
// container must not count as exited by itself.
func TestAStopThatWasCutOffIsNoEndOfItsOwn(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer func() { a.end(t) }()
	pod := load(t, `
apiVersion: v1
kind: Pod
metadata: {name: cut}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: c, image: `+testImage+`, command: [sh, -c, "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"]}]
`)
	key := pod.Key()
	a.drive(t, key, pod)
	pid := a.pidOf(t, key)
	within(t, patience, "the container handles signals", func() bool { return strings.Contains(a.logOf(t, key), "up") })
	for left := range 2 {
		c, err := client.New("", client.WithServices(
			client.WithContainerStore(&forgetful{a.client.ContainerService(), left}), client.WithTaskClient(a.client.TaskService())))
		check(t, err)
		cut := &container.Lifecycle{Client: c, Records: &record.Store{Client: c, Index: a.index, Log: a.log}, Log: a.log}
		if err := cut.StopContainer(a.ns(t.Context()), key, runner.Action{Kind: runner.StopContainer, Container: "c"}); !errdefs.IsUnavailable(err) {
			t.Fatalf("with %d changes to its record the stop says: %v", left, err)
		}
		if left == 0 && a.pidOf(t, key) != pid {
			t.Error("another process")
		}
	}
	if c := a.exit(t, key); c.Exit.ExitCode != 0 {
		t.Fatalf("it exited with %d", c.Exit.ExitCode)
	}
	a.stop(t)
	a = w.open(t)
	if did := a.drive(t, key, pod); !slices.ContainsFunc(did, func(s string) bool { return s == string(runner.StartContainer)+" c" }) {
		t.Errorf("it was not started again, but: %v", did)
	}
	if now := slices.ContainsFunc(a.state(t, key).Containers, func(c runner.Container) bool { return c.State == runner.ContainerRunning }); !now {
		t.Error("it does not run")
	}
	check(t, removePod(t.Context(), a, key))
}
