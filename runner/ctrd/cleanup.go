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

// ErrPodsLeft says that Cleanup found pods.
var ErrPodsLeft = errors.New("pods are still there")

// Cleanup gives back what an instance keeps on the machine beside its pods: it finishes the removal of pods
// that is still going on (Run must run), then deletes bridge, firewall rules and cgroups. It refuses with
// ErrPodsLeft while there are pods. Images and directories stay.
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
			return fmt.Errorf("remove pods: %d removals do not end: %w", r.removal.Teardown.Pending(), ctx.Err())
		}
	}
	err = errors.Join(r.net.Destroy(ctx), r.podCgroups.Cgroups.RemoveEmpty(r.podCgroups.Cgroups.AllPods()), r.podCgroups.Cgroups.RemoveEmpty(r.cfg.CgroupParent), trees.Remove(r.dirs.SecretsDir()))
	// Logs of gone pods are gone; the directories go if nothing else is in them.
	_ = os.Remove(r.cfg.PodLogsDir)
	_ = os.Remove(r.cfg.ContainerLogsDir)
	return err
}
