package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/nodeevents"
	"monopod/internal/pause"
	"monopod/node/admission"
	"monopod/node/lockfile"
	"monopod/node/systemd"
)

// errHandedOver ends a Daemon because another agent takes over.
var errHandedOver = errors.New("another agent takes over this machine")

// WaitForLock acquires the lock file, if one is configured, and waits while another agent holds it. The service manager is
// notified, because a waiting service counts as started and healthy. The lock is nil if none is configured.
func WaitForLock(ctx context.Context, cfg *config.Loaded, manager *systemd.Notifier, log *slog.Logger) (*lockfile.Lock, error) {
	if cfg.LockFile == "" {
		return nil, nil
	}
	waited, done := context.WithCancel(ctx)
	defer done()
	return lockfile.Acquire(ctx, cfg.LockFile, func() {
		log.Info("another agent manages the pods of this machine; waiting for its lock file", "lockFile", cfg.LockFile)
		tell := func(lines ...string) {
			if err := manager.Tell(lines...); err != nil {
				log.Warn("cannot notify the service manager", "what", lines, "err", err)
			}
		}
		tell("READY=1", "STATUS=waiting for "+cfg.LockFile+", which another agent holds")
		if manager != nil && manager.Watchdog > 0 {
			go ping(waited, manager.Watchdog/2, tell)
		}
	})
}

// ping notifies the watchdog until ctx ends.
func ping(ctx context.Context, every time.Duration, tell func(...string)) {
	for pause.For(ctx, every); ctx.Err() == nil; pause.For(ctx, every) {
		tell("WATCHDOG=1")
	}
}

// IgnoreCanceled returns nil for context.Canceled.
func IgnoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// handover gives the machine to another agent that wants the lock file.
type handover struct {
	lock   *lockfile.Lock
	cfg    *config.Loaded
	gate   *admission.Controller
	events *nodeevents.Recorder
	log    *slog.Logger
}

// run waits until another agent wants the lock file, removes the pods if so configured, and returns errHandedOver.
func (h *handover) run(ctx context.Context) error {
	how, err := h.lock.Contended(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("exitOnLockContention: %w", err)
	}
	h.log.Warn("another agent takes over this machine", "lockFile", h.cfg.LockFile, "was", how, "pods", h.cfg.LockContentionPods)
	h.events.Node(corev1.EventTypeNormal, "HandOver", "Somebody has "+how+" "+h.cfg.LockFile+"; monopod leaves the machine to them")
	if h.cfg.LockContentionPods == config.ContentionStop {
		h.gate.HandOver(ctx)
	}
	return errHandedOver
}
