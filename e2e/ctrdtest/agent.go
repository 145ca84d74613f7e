//go:build e2e

package ctrdtest

import (
	"testing"

	"monopod/manifests"
	"monopod/runner"
)

// PID returns the process of the only container of a pod, which must be running.
func (a *Agent) PID(t *testing.T, key manifests.Key) uint32 {
	t.Helper()
	st, err := a.Observe(t.Context(), key)
	Check(t, err)
	if len(st.Containers) != 1 || st.Containers[0].State != runner.ContainerRunning {
		t.Fatalf("%s: %+v", key, st.Containers)
	}
	return st.Containers[0].PID
}
