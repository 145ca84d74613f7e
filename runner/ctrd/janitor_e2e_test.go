//go:build e2e

package ctrd

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/leases"
)

func TestLeasesOfAnAgentThatWasKilledDoNotKeepAnything(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	ctx := a.ns(context.Background())
	_, err := a.client.LeasesService().Create(ctx, leases.WithID("left"))
	check(t, err)
	a.stop(t)
	a = w.open(t)
	defer a.end(t)
	left, err := a.client.LeasesService().List(ctx)
	check(t, err)
	if len(left) != 0 {
		t.Errorf("leases %v", left)
	}
}
