package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"monopod/internal/pause"
	"monopod/runner/ctrd/trees"
)

// ErrPodsLeft reports that Cleanup found pods.
var ErrPodsLeft = errors.New("pods still exist")

// Cleanup removes what an instance keeps on the machine besides pods and images: it waits until pods that are being removed are
// gone (Run must be running), then deletes the bridge, firewall rules and cgroups. It returns ErrPodsLeft if there are pods.
// Directories stay.
func (r *Runtime) Cleanup(ctx context.Context) error {
	keys, err := r.List(ctx)
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		return fmt.Errorf("%w: %d, the first is %s", ErrPodsLeft, len(keys), keys[0])
	}
	for r.removal.Teardown.Pending() > 0 {
		if !pause.For(ctx, 20*time.Millisecond) {
			return fmt.Errorf("remove pods: %d removals do not finish: %w", r.removal.Teardown.Pending(), ctx.Err())
		}
	}
	err = errors.Join(r.net.Destroy(ctx), r.podCgroups.Cgroups.RemoveEmpty(r.podCgroups.Cgroups.AllPods()), r.podCgroups.Cgroups.RemoveEmpty(r.cfg.CgroupParent), trees.Remove(r.dirs.SecretsDir()))
	// The logs of removed pods are gone already; the directories are removed if they are empty.
	_ = os.Remove(r.cfg.PodLogsDir)
	_ = os.Remove(r.cfg.ContainerLogsDir)
	return err
}
