package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
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
	for r.teardown.pending() > 0 {
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("remove pods: %d removals do not end: %w", r.teardown.pending(), ctx.Err())
		}
	}
	err = errors.Join(r.net.Destroy(ctx), r.cgroups.removeEmpty(r.cgroups.root()), r.cgroups.removeEmpty(r.cfg.CgroupParent), removeTree(r.secretsDir()))
	// Logs of gone pods are gone; the directories go if nothing else is in them.
	_ = os.Remove(r.cfg.PodLogsDir)
	_ = os.Remove(r.cfg.ContainerLogsDir)
	return err
}
