package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"monopod/internal/pause"
	"monopod/node/systemd"
)

const (
	// readyAfter is when a service counts as started though its pods cannot be looked after yet: a full disk, or no containerd,
	// is no reason to start it again.
	readyAfter = 10 * time.Second
	// statusRest is the shortest time between two lines of status.
	statusRest = time.Second
)

// service tells the service manager how the agent is.
type service struct {
	manager *systemd.Notifier
	log     *slog.Logger
	// alive says which loop does not go round.
	alive func(context.Context) error
	// status is a line about the pods; ready says that they are looked after.
	status func() (line string, ready bool)
	// changed tells that the status may be another one.
	changed func() (<-chan struct{}, func())
	// patience is readyAfter.
	patience time.Duration
}

func newService(a *App) *service {
	return &service{manager: a.Manager, log: a.Log, alive: a.alive, status: a.statusLine, changed: a.Board.Subscribe, patience: readyAfter}
}

// tell passes something on; that nobody hears it is no reason to stop.
func (s *service) tell(lines ...string) {
	if err := s.manager.Tell(lines...); err != nil {
		s.log.Warn("the service manager cannot be told", "what", lines, "err", err)
	}
}

// run works until ctx ends. It is not one of the loops that are asked: it asks.
func (s *service) run(ctx context.Context) {
	var g sync.WaitGroup
	if s.manager.Watchdog > 0 {
		g.Go(func() { s.watchdog(ctx) })
	}
	s.report(ctx)
	s.tell("STOPPING=1", "STATUS=stopping; the pods go on")
	g.Wait()
}

// report tells when the agent is up, and each other status.
func (s *service) report(ctx context.Context) {
	changed, cancel := s.changed()
	defer cancel()
	late := time.NewTimer(s.patience)
	defer late.Stop()
	told, up, over := "", false, false
	for ctx.Err() == nil {
		line, ready := s.status()
		if line != told {
			told = line
			s.tell("STATUS=" + line)
		}
		if !up && (ready || over) {
			up = true
			late.Stop()
			s.tell("READY=1")
		}
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			over = true
		case <-changed:
			if up { // else it is waited for
				pause.For(ctx, statusRest)
			}
		}
	}
}

// watchdog pings as long as all loops go round.
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
		case err != nil: // the machine may be busy: there is time to ask again
			s.log.Error("the watchdog of the service manager is not told that all is well", "err", err)
			wait = s.manager.Watchdog / 16
		default:
			s.tell("WATCHDOG=1")
			wait = s.manager.Watchdog / 2
		}
	}
}
