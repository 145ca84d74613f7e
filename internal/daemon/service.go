package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemon/state"
	"monopod/internal/pause"
	"monopod/internal/printer"
	"monopod/node"
	"monopod/node/admission"
	"monopod/node/systemd"
)

const (
	// readyAfter is when the service counts as started even if no runtime is open: with a full disk, or without containerd,
	// a restart would not help.
	readyAfter = 10 * time.Second
	// statusInterval is the shortest time between two status lines.
	statusInterval = time.Second
)

// service notifies the service manager of the state of the daemon.
type service struct {
	manager *systemd.Notifier
	log     *slog.Logger
	// alive returns an error if a loop of the daemon does not respond. It asks through the socket, which must respond too. A lost runtime
	// is not an error: a restart would not help.
	alive func(context.Context) error
	// status returns a line about the pods, and whether a runtime is open.
	status func() (line string, ready bool)
	// changed subscribes to changes of the status.
	changed func() (<-chan struct{}, func())
	// readyTimeout is readyAfter, except in tests.
	readyTimeout time.Duration
}

// statusLine summarizes the pods. ready is true if a runtime is open.
func statusLine(s *state.Store, gate *admission.Controller) (line string, ready bool) {
	pods, err := s.Statuses()
	if errors.Is(err, node.ErrStarting) {
		return "starting", false
	}
	if err != nil {
		return "the runtime does not respond: " + printer.OneLine(err.Error()), false
	}
	running, done := 0, 0
	for i := range pods {
		switch pods[i].Pod.Status.Phase {
		case corev1.PodRunning:
			running++
		case corev1.PodSucceeded:
			done++
		}
	}
	line = fmt.Sprintf("%d pods: %d running, %d completed, %d not", len(pods), running, done, len(pods)-running-done)
	switch schedule := gate.Schedule(); {
	case schedule.ShuttingDown:
		line += "; the machine is shutting down"
	case schedule.Drained:
		line += "; drained"
	case schedule.Cordoned:
		line += "; cordoned"
	}
	return line, true
}

// notify sends lines to the service manager. An error is only logged.
func (s *service) notify(lines ...string) {
	if err := s.manager.Tell(lines...); err != nil {
		s.log.Warn("cannot notify the service manager", "what", lines, "err", err)
	}
}

// run works until ctx ends.
func (s *service) run(ctx context.Context) {
	var g sync.WaitGroup
	if s.manager.Watchdog > 0 {
		g.Go(func() { s.watchdog(ctx) })
	}
	s.report(ctx)
	s.notify("STOPPING=1", "STATUS=stopping; the pods keep running")
	g.Wait()
}

// report notifies that the service is ready, and each change of the status line.
func (s *service) report(ctx context.Context) {
	changed, cancel := s.changed()
	defer cancel()
	late := time.NewTimer(s.readyTimeout)
	defer late.Stop()
	told, up, over := "", false, false
	for ctx.Err() == nil {
		line, ready := s.status()
		if line != told {
			told = line
			s.notify("STATUS=" + line)
		}
		if !up && (ready || over) {
			up = true
			late.Stop()
			s.notify("READY=1")
		}
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			over = true
		case <-changed:
			if up { // before that, READY=1 must not be delayed
				pause.For(ctx, statusInterval)
			}
		}
	}
}

// watchdog pings while all loops respond.
func (s *service) watchdog(ctx context.Context) {
	for wait := s.manager.Watchdog / 2; ; {
		if pause.For(ctx, wait); ctx.Err() != nil {
			return
		}
		asked, cancel := context.WithTimeout(ctx, s.manager.Watchdog/4)
		err := s.alive(asked)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the machine may be busy: there is time to check again
			s.log.Error("not notifying the watchdog of the service manager", "err", err)
			wait = s.manager.Watchdog / 16
		default:
			s.notify("WATCHDOG=1")
			wait = s.manager.Watchdog / 2
		}
	}
}
