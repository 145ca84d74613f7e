//go:build e2e

package ctrdtest

import (
	"testing"

	"monopod/runner"
)

// Finishes records that a container has ended, as a worker does.
func (a *Agent) Finishes(t *testing.T, c *runner.Container, again func(runner.Action) error) {
	t.Helper()
	Check(t, again(runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: c.ID, Exit: c.Exit}))
}
