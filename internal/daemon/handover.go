package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/pause"
	"monopod/node/lockfile"
	"monopod/node/systemd"
)

// errHandedOver ends an App because another agent takes over.
var errHandedOver = errors.New("another agent takes over this machine")

// WaitForLock takes the lock file, if there is to be one, and waits while another agent holds it. A service manager is told
// so: a service that waits has started, and is well.
func WaitForLock(ctx context.Context, cfg *config.Loaded, manager *systemd.Notifier, log *slog.Logger) (*lockfile.Lock, error) {
	if cfg.LockFile == "" {
		return nil, nil
	}
	waited, done := context.WithCancel(ctx)
	defer done()
	return lockfile.Acquire(ctx, cfg.LockFile, func() {
		log.Info("another agent looks after the pods of this machine; waiting for its lock file", "lockFile", cfg.LockFile)
		tell := func(lines ...string) {
			if err := manager.Tell(lines...); err != nil {
				log.Warn("the service manager cannot be told", "what", lines, "err", err)
			}
		}
		tell("READY=1", "STATUS=waiting for "+cfg.LockFile+", which another agent holds")
		if manager != nil && manager.Watchdog > 0 {
			go ping(waited, manager.Watchdog/2, tell)
		}
	})
}

// ping tells again and again that all is well, until ctx ends.
func ping(ctx context.Context, every time.Duration, tell func(...string)) {
	for pause.For(ctx, every); ctx.Err() == nil; pause.For(ctx, every) {
		tell("WATCHDOG=1")
	}
}

// IgnoreCanceled returns nil for the error of a cancelled context, and every other error as it is.
func IgnoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// handOver waits until another agent wants the lock file, sees to it that it finds what it needs, and returns errHandedOver.
func (a *App) handOver(ctx context.Context) error {
	how, err := a.Lock.Contended(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("exitOnLockContention: %w", err)
	}
	a.Log.Warn("another agent takes over this machine", "lockFile", a.cfg.LockFile, "was", how, "pods", a.cfg.LockContentionPods)
	a.tell(corev1.EventTypeNormal, "HandOver", "Somebody has "+how+" "+a.cfg.LockFile+"; monopod leaves the machine to them")
	if a.cfg.LockContentionPods == config.ContentionStop {
		a.gate.HandOver(ctx)
	}
	return errHandedOver
}
