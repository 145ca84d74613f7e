//go:build e2e

package upkeep_test

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/leases"

	"monopod/e2e/ctrdtest"
)

func TestLeasesOfAnAgentThatWasKilledDoNotKeepAnything(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	ctx := a.NS(context.Background())
	_, err := a.Client.LeasesService().Create(ctx, leases.WithID("left"))
	ctrdtest.Check(t, err)
	a.Stop(t)
	a = w.Open(t)
	defer a.End(t)
	left, err := a.Client.LeasesService().List(ctx)
	ctrdtest.Check(t, err)
	if len(left) != 0 {
		t.Errorf("leases %v", left)
	}
}
