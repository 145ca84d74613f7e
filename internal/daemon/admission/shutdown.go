package admission

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

// Shutdown stops pods before the machine goes down: logind says when, or SIGPWR where there is none.
//
//	connect -> take the lock -> wait for PrepareForShutdown -> group after group -> give the lock back
type Shutdown struct {
	Gate    *Gate
	Groups  []config.ShutdownGroup
	Log     *slog.Logger
	Marker  ShutdownMarker
	Connect func(context.Context) (host.Logind, error)
	// Allow makes logind wait so long, once it has reloaded.
	Allow func(time.Duration) error
	// There says that this machine has a logind; without, none is waited for.
	There func() bool
	Tell  func(eventType, reason, message string)
}

// total is the time that all groups have.
func (s *Shutdown) total() time.Duration {
	sum := time.Duration(0)
	for _, g := range s.Groups {
		sum += g.Grace
	}
	return sum
}

// Remember stops pods if the machine was shutting down when the agent ended. It must return before there is a pool, which would start them.
func (s *Shutdown) Remember() {
	if s.Marker.began() {
		s.Log.Warn("the machine was shutting down when monopod ended: pods are not started; if it goes on after all, `monopod undrain` lets them")
		s.Gate.End(&Ending{Groups: s.Groups, current: len(s.Groups) - 1})
	}
}

// Run works until ctx ends.
func (s *Shutdown) Run(ctx context.Context) {
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
func (s *Shutdown) listen(ctx context.Context) {
	wait, last := reconnectFirst, ""
	for s.There() && ctx.Err() == nil {
		l, err := s.Connect(ctx)
		if err == nil {
			wait, last = reconnectFirst, ""
			err = errors.Join(s.follow(ctx, l), l.Close())
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			s.Log.Warn("a shutdown of the machine would not wait for pods", "err", err, "again", wait)
		}
		pause.For(ctx, wait)
		wait = min(2*wait, reconnectLast)
	}
}

// follow delays shutdowns until ctx ends or the connection is lost.
func (s *Shutdown) follow(ctx context.Context, l host.Logind) error {
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
				s.Log.Warn("let the machine go down", "err", err)
			}
		case !first || s.Gate.IsEnding(): // it was cancelled
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
func (s *Shutdown) inhibit(ctx context.Context, l host.Logind) (io.Closer, error) {
	most, err := l.DelayMax(ctx)
	if err != nil {
		return nil, err
	}
	if need := s.total(); most < need {
		if err := s.extend(ctx, l, need); err != nil { // less time is better than none
			s.Log.Warn("pods have less time at a shutdown than they are to have", "most", most, "shutdownGracePeriod", need, "err", err)
		}
	}
	return l.Inhibit(ctx)
}

// extend has logind wait longer.
func (s *Shutdown) extend(ctx context.Context, l host.Logind, need time.Duration) error {
	if err := s.Allow(need + delayMargin); err != nil {
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
func (s *Shutdown) stop(ctx context.Context, by string) {
	s.Log.Warn("the machine shuts down; pods are stopped", "by", by, "within", s.total())
	s.Tell(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown event")
	if err := s.Marker.begin(); err != nil {
		s.Log.Warn("note that the machine shuts down", "err", err)
	}
	for i := range s.Groups {
		s.Gate.End(&Ending{Groups: s.Groups, current: i})
		if left := s.await(ctx, i); len(left) > 0 && ctx.Err() == nil {
			s.Log.Warn("pods have not stopped in time", "priority", s.Groups[i].Priority, "after", s.Groups[i].Grace, "pods", left)
		}
	}
	if err := s.Marker.end(); err != nil {
		s.Log.Warn("note that pods have stopped", "err", err)
	}
	s.Log.Info("the machine may go down")
}

// await waits until the pods up to a group have stopped, or its time is over, and returns those that have not.
func (s *Shutdown) await(ctx context.Context, group int) []string {
	changed, cancel := s.Gate.changed()
	defer cancel()
	over := time.NewTimer(s.Groups[group].Grace)
	defer over.Stop()
	for {
		left, seen := s.Gate.unstopped(group)
		if len(left) == 0 && seen {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-over.C:
			left, _ = s.Gate.unstopped(group)
			return left
		case <-changed:
		}
	}
}

// resume lets pods run again: the shutdown was cancelled.
func (s *Shutdown) resume() {
	s.Log.Warn("the machine does not shut down after all; pods start again")
	s.Marker.Remove()
	s.Gate.End(nil)
}

// End has the pods stopped because the machine goes down; nil: it does not.
func (g *Gate) End(e *Ending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = e
	g.applyLocked()
	g.Notify()
}

func (g *Gate) IsEnding() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ending != nil
}

// unstopped are the pods up to a group that have not stopped; seen says that all are known.
func (g *Gate) unstopped(group int) (names []string, seen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending == nil {
		return nil, true
	}
	left, err := g.leftLocked()
	left = slices.DeleteFunc(left, func(p podstatus.Status) bool { return groupOf(g.ending.Groups, priorityOf(&p.Pod.Spec)) > group })
	for _, p := range left {
		names = append(names, p.Key().String())
	}
	return names, err == nil
}

// ShutdownMarker is the file that says that the machine is shutting down, for the case that monopod is started again meanwhile.
// It has the name and the content that a kubelet's has, and the boot it is about.
type ShutdownMarker struct{ Path, Boot string }

type shutdownState struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime,omitzero"`
	Boot      string    `json:"boot"`
}

// began says that a shutdown began in this boot of the machine.
func (m ShutdownMarker) began() bool {
	st, err := m.read()
	return err == nil && st.Boot == m.Boot
}

func (m ShutdownMarker) read() (st shutdownState, err error) {
	b, err := atomicfile.Read(m.Path, atomicfile.MaxState)
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	return st, err
}

func (m ShutdownMarker) begin() error {
	return m.write(shutdownState{StartTime: boottime.Now().Wall, Boot: m.Boot})
}

func (m ShutdownMarker) end() error {
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

func (m ShutdownMarker) write(st shutdownState) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return atomicfile.Write(m.Path, []byte(strings.TrimSpace(string(b))+"\n"), 0o600)
}

func (m ShutdownMarker) Remove() { _ = os.Remove(m.Path) } // another boot does not mind
