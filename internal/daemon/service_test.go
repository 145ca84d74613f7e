package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"monopod/internal/daemontest"
)

func TestTheWatchdogIsNotPingedWhileALoopStandsStill(t *testing.T) {
	t.Parallel()
	n, told := daemontest.ServiceManager(t, 40*time.Millisecond)
	log := &daemontest.SyncBuffer{}
	var stuck atomic.Bool
	stuck.Store(true)
	asked := make(chan struct{}, 3)
	s := &service{
		manager: n, log: slog.New(slog.NewTextHandler(log, nil)), readyTimeout: time.Hour,
		changed: func() (<-chan struct{}, func()) { return nil, func() {} },
		status:  func() (string, bool) { return "x", false },
		alive: func(ctx context.Context) error {
			select {
			case asked <- struct{}{}:
			default: // nobody counts any more
			}
			if stuck.Load() {
				<-ctx.Done()
				return errors.New("the loop of a test does not go round")
			}
			return nil
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.run(ctx); close(ended) }()
	for range 3 {
		<-asked
	}
	stuck.Store(false)
	for m := told.Wait(t, ""); m != "WATCHDOG=1"; m = told.Wait(t, "") {
		if m != "STATUS=x" {
			t.Errorf("told %q", m)
		}
	}
	if !strings.Contains(log.String(), "the loop of a test does not go round") {
		t.Error("nothing is logged")
	}
	stop()
	<-ended
	told.Wait(t, "STOPPING=1")
}

// A service that cannot look after its pods has started all the same.
func TestAServiceIsReadyThoughItsRuntimeIsNot(t *testing.T) {
	t.Parallel()
	n, told := daemontest.ServiceManager(t, 0)
	s := &service{
		manager: n, log: slog.New(slog.DiscardHandler), readyTimeout: 10 * time.Millisecond,
		changed: func() (<-chan struct{}, func()) { return nil, func() {} },
		status:  func() (string, bool) { return "the runtime does not respond: x", false },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.run(ctx); close(ended) }()
	told.Wait(t, "STATUS=the runtime does not respond: x")
	told.Wait(t, "READY=1")
	stop()
	<-ended
}
