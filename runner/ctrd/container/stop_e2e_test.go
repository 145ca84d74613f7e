//go:build e2e

package container_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"

	"monopod/e2e/ctrdtest"
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
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer func() { a.End(t) }()
	pod := ctrdtest.Load(t, `
apiVersion: v1
kind: Pod
metadata: {name: cut}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: c, image: `+ctrdtest.TestImage+`, command: [sh, -c, "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"]}]
`)
	key := pod.Key()
	a.Drive(t, key, pod)
	pid := a.PID(t, key)
	ctrdtest.Within(t, ctrdtest.Patience, "the container handles signals", func() bool { return strings.Contains(a.LogOf(t, key), "up") })
	for left := range 2 {
		c, err := client.New("", client.WithServices(
			client.WithContainerStore(&forgetful{a.Client.ContainerService(), left}), client.WithTaskClient(a.Client.TaskService())))
		ctrdtest.Check(t, err)
		cut := &container.Lifecycle{Client: c, Records: &record.Store{Client: c, Index: a.Index, Log: a.Config.Log}, Log: a.Config.Log}
		if err := cut.StopContainer(a.NS(t.Context()), key, runner.Action{Kind: runner.StopContainer, Container: "c"}); !errdefs.IsUnavailable(err) {
			t.Fatalf("with %d changes to its record the stop says: %v", left, err)
		}
		if left == 0 && a.PID(t, key) != pid {
			t.Error("another process")
		}
	}
	if c := a.Exit(t, key); c.Exit.ExitCode != 0 {
		t.Fatalf("it exited with %d", c.Exit.ExitCode)
	}
	a.Stop(t)
	a = w.Open(t)
	if did := a.Drive(t, key, pod); !slices.ContainsFunc(did, func(s string) bool { return s == string(runner.StartContainer)+" c" }) {
		t.Errorf("it was not started again, but: %v", did)
	}
	if now := slices.ContainsFunc(a.State(t, key).Containers, func(c runner.Container) bool { return c.State == runner.ContainerRunning }); !now {
		t.Error("it does not run")
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, key))
}
