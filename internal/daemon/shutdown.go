package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile"
	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/host"
	"monopod/internal/pause"
	"monopod/node/systemd"
	"monopod/runner/podstatus"
)

const (
	// delayMargin is how much longer logind is asked to wait than the pods have: killing takes its time.
	delayMargin = 5 * time.Second
	// reconnectFirst and reconnectLast are the shortest and the longest wait before logind is asked for again.
	reconnectFirst = time.Second
	reconnectLast  = time.Minute
	// reloadPatience is how long logind may take to read its configuration.
	reloadPatience = 5 * time.Second
)

// shutdown stops pods before the machine goes down: logind says when, or SIGPWR where there is none.
//
//	connect -> take the lock -> wait for PrepareForShutdown -> group after group -> give the lock back
type shutdown struct {
	gate    *gate
	groups  []config.ShutdownGroup
	log     *slog.Logger
	marker  shutdownMarker
	connect func(context.Context) (host.Logind, error)
	// allow makes logind wait so long, once it has reloaded.
	allow func(time.Duration) error
	// there says that this machine has a logind; without, none is waited for.
	there func() bool
	tell  func(eventType, reason, message string)
}

func (a *App) NewShutdown(h host.Host) *shutdown {
	s := &shutdown{
		gate: a.gate, groups: a.cfg.ShutdownGroups(), log: a.Log, tell: a.tell, there: h.HasSystemd,
		marker:  shutdownMarker{filepath.Join(a.cfg.RootDirectory, "graceful_node_shutdown_state"), a.gate.store.Boot()},
		connect: h.Connect, allow: func(d time.Duration) error { return systemd.AllowDelay(d, h.Logind...) },
	}
	a.gate.undone = s.marker.remove
	return s
}

// total is the time that all groups have.
func (s *shutdown) total() time.Duration {
	sum := time.Duration(0)
	for _, g := range s.groups {
		sum += g.Grace
	}
	return sum
}

// remember stops pods if the machine was shutting down when the agent ended. It must return before there is a pool, which would start them.
func (s *shutdown) remember() {
	if s.marker.began() {
		s.log.Warn("the machine was shutting down when monopod ended: pods are not started; if it goes on after all, `monopod undrain` lets them")
		s.gate.end(&ending{groups: s.groups, current: len(s.groups) - 1})
	}
}

// run works until ctx ends.
func (s *shutdown) run(ctx context.Context) {
	power := make(chan os.Signal, 1)
	signal.Notify(power, syscall.SIGPWR)
	defer signal.Stop(power)
	listening := make(chan struct{})
	go func() { defer close(listening); s.listen(ctx) }()
	for {
		select {
		case <-ctx.Done():
			<-listening
			return
		case <-power:
			s.stop(ctx, "SIGPWR")
		}
	}
}

// listen follows logind, and looks for it again when it is lost.
func (s *shutdown) listen(ctx context.Context) {
	wait, last := reconnectFirst, ""
	for s.there() && ctx.Err() == nil {
		l, err := s.connect(ctx)
		if err == nil {
			wait, last = reconnectFirst, ""
			err = errors.Join(s.follow(ctx, l), l.Close())
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			s.log.Warn("a shutdown of the machine would not wait for pods", "err", err, "again", wait)
		}
		pause.For(ctx, wait)
		wait = min(2*wait, reconnectLast)
	}
}

// follow delays shutdowns until ctx ends or the connection is lost.
func (s *shutdown) follow(ctx context.Context, l host.Logind) error {
	lock, err := s.inhibit(ctx, l)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // the kernel does that, too
	down, err := l.Preparing(ctx)
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		switch {
		case down:
			s.stop(ctx, "logind")
			if err := lock.Close(); err != nil {
				s.log.Warn("let the machine go down", "err", err)
			}
		case !first || s.gate.isEnding(): // it was cancelled
			s.resume()
			_ = lock.Close() // it is closed already, unless logind has said the same twice
			if lock, err = s.inhibit(ctx, l); err != nil {
				return err
			}
		}
		if down, err = l.Next(ctx); err != nil {
			return err
		}
	}
}

// inhibit takes the lock, and sees to it that it is worth something.
func (s *shutdown) inhibit(ctx context.Context, l host.Logind) (io.Closer, error) {
	most, err := l.DelayMax(ctx)
	if err != nil {
		return nil, err
	}
	if need := s.total(); most < need {
		if err := s.extend(ctx, l, need); err != nil { // less time is better than none
			s.log.Warn("pods have less time at a shutdown than they are to have", "most", most, "shutdownGracePeriod", need, "err", err)
		}
	}
	return l.Inhibit(ctx)
}

// extend has logind wait longer.
func (s *shutdown) extend(ctx context.Context, l host.Logind, need time.Duration) error {
	if err := s.allow(need + delayMargin); err != nil {
		return err
	}
	if err := l.Reload(ctx); err != nil {
		return err
	}
	for deadline := time.Now().Add(reloadPatience); ; pause.For(ctx, 50*time.Millisecond) {
		most, err := l.DelayMax(ctx)
		switch {
		case err != nil:
			return err
		case most >= need:
			return nil
		case time.Now().After(deadline) || ctx.Err() != nil:
			return fmt.Errorf("logind waits for %s at most, whatever its drop-in says", most)
		}
	}
}

// stop stops group after group.
func (s *shutdown) stop(ctx context.Context, by string) {
	s.log.Warn("the machine shuts down; pods are stopped", "by", by, "within", s.total())
	s.tell(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown event")
	if err := s.marker.begin(); err != nil {
		s.log.Warn("note that the machine shuts down", "err", err)
	}
	for i := range s.groups {
		s.gate.end(&ending{groups: s.groups, current: i})
		if left := s.await(ctx, i); len(left) > 0 && ctx.Err() == nil {
			s.log.Warn("pods have not stopped in time", "priority", s.groups[i].Priority, "after", s.groups[i].Grace, "pods", left)
		}
	}
	if err := s.marker.end(); err != nil {
		s.log.Warn("note that pods have stopped", "err", err)
	}
	s.log.Info("the machine may go down")
}

// await waits until the pods up to a group have stopped, or its time is over, and returns those that have not.
func (s *shutdown) await(ctx context.Context, group int) []string {
	changed, cancel := s.gate.changed()
	defer cancel()
	over := time.NewTimer(s.groups[group].Grace)
	defer over.Stop()
	for {
		left, seen := s.gate.unstopped(group)
		if len(left) == 0 && seen {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-over.C:
			left, _ = s.gate.unstopped(group)
			return left
		case <-changed:
		}
	}
}

// resume lets pods run again: the shutdown was cancelled.
func (s *shutdown) resume() {
	s.log.Warn("the machine does not shut down after all; pods start again")
	s.marker.remove()
	s.gate.end(nil)
}

// end has the pods stopped because the machine goes down; nil: it does not.
func (g *gate) end(e *ending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = e
	g.applyLocked()
	g.notify()
}

func (g *gate) isEnding() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ending != nil
}

// unstopped are the pods up to a group that have not stopped; seen says that all are known.
func (g *gate) unstopped(group int) (names []string, seen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending == nil {
		return nil, true
	}
	left, err := g.leftLocked()
	left = slices.DeleteFunc(left, func(p podstatus.Status) bool { return groupOf(g.ending.groups, priorityOf(&p.Pod.Spec)) > group })
	for _, p := range left {
		names = append(names, p.Key().String())
	}
	return names, err == nil
}

// shutdownMarker is the file that says that the machine is shutting down, for the case that monopod is started again meanwhile.
// It has the name and the content that a kubelet's has, and the boot it is about.
type shutdownMarker struct{ path, boot string }

type shutdownState struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime,omitzero"`
	Boot      string    `json:"boot"`
}

// began says that a shutdown began in this boot of the machine.
func (m shutdownMarker) began() bool {
	st, err := m.read()
	return err == nil && st.Boot == m.boot
}

func (m shutdownMarker) read() (st shutdownState, err error) {
	b, err := atomicfile.Read(m.path, atomicfile.MaxState)
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	return st, err
}

func (m shutdownMarker) begin() error {
	return m.write(shutdownState{StartTime: boottime.Now().Wall, Boot: m.boot})
}

func (m shutdownMarker) end() error {
	st, err := m.read()
	if errors.Is(err, fs.ErrNotExist) { // it was cancelled meanwhile
		return nil
	}
	if err == nil {
		st.EndTime = boottime.Now().Wall
		err = m.write(st)
	}
	return err
}

func (m shutdownMarker) write(st shutdownState) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return atomicfile.Write(m.path, []byte(strings.TrimSpace(string(b))+"\n"), 0o600)
}

func (m shutdownMarker) remove() { _ = os.Remove(m.path) } // another boot does not mind
