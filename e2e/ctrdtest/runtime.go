//go:build e2e

package ctrdtest

import (
	"testing"
	"time"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
)

// Load decodes the manifest of one pod.
func Load(t testing.TB, text string) *manifests.Pod {
	t.Helper()
	pods, err := decode.Pods("/x/pod.yaml", []byte(text), decode.Options{Source: "file"})
	Check(t, err)
	return pods[0]
}

// State observes a pod.
func (a *Agent) State(t testing.TB, key manifests.Key) runner.PodState {
	t.Helper()
	st, err := a.Observe(t.Context(), key)
	Check(t, err)
	return st
}

// Exit waits for the end of the pod's newest container and returns how it ended.
func (a *Agent) Exit(t testing.TB, key manifests.Key) *runner.Container {
	t.Helper()
	var c runner.Container
	Within(t, 20*time.Second, "the container has exited", func() bool {
		all := a.State(t, key).Containers
		c = all[len(all)-1]
		return c.State == runner.ContainerExited
	})
	return &c
}
