package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/pause"
)

const (
	// delayMargin is added to the time of the pods when logind is asked for its delay: killing takes its time.
	delayMargin = 5 * time.Second
	// reconnectFirst and reconnectLast are the shortest and the longest wait before the next connection to logind.
	reconnectFirst = time.Second
	reconnectLast  = time.Minute
	// reloadTimeout bounds how long logind takes to read its configuration.
	reloadTimeout = 5 * time.Second
)

// Logind delays shutdowns of the machine; see systemd.Logind.
type Logind interface {
	// DelayMax returns how long logind waits for those that delay a shutdown.
	DelayMax(ctx context.Context) (time.Duration, error)
	// Preparing reports whether the machine is shutting down.
	Preparing(ctx context.Context) (bool, error)
	// Inhibit delays each shutdown until the lock is closed, or DelayMax is over.
	Inhibit(ctx context.Context) (io.Closer, error)
	// Reload makes logind read its configuration.
	Reload(ctx context.Context) error
	// Next waits until a shutdown begins (true) or is cancelled (false).
	Next(ctx context.Context) (bool, error)
	Close() error
}

// Pods stops pods, and lets them run again. Its methods may be called from any goroutine.
type Pods interface {
	// ShutDown stops the pods that are due, and starts none; nil: the machine does not shut down.
	ShutDown(*Progress)
	// Proceed is ShutDown for the next group. It does nothing, and returns false, if the shutdown was cancelled meanwhile.
	Proceed(*Progress) bool
	// ShuttingDown reports whether the last Progress was not nil.
	ShuttingDown() bool
	// Unstopped returns the names of the pods that are due and still run; seen reports whether all pods are known.
	Unstopped() (names []string, seen bool)
	// Subscribe returns a channel that gets a value after each change of a pod, and a function that ends the subscription.
	Subscribe() (<-chan struct{}, func())
}

// Manager stops pods before the machine goes down. It learns of a shutdown from logind, or from SIGPWR where there is none.
//
//	connect -> take the lock -> wait for PrepareForShutdown -> stop group after group -> close the lock
type Manager struct {
	Pods   Pods
	Groups []Group
	Log    *slog.Logger
	Marker Marker
	// Connect connects to logind, if HasLogind reports that this machine has it.
	Connect   func(context.Context) (Logind, error)
	HasLogind func() bool
	// AllowDelay configures logind, once it has reloaded, to wait for that time.
	AllowDelay func(time.Duration) error
	// Record records an event of the node.
	Record func(eventType, reason, message string)
}

// Resume stops all pods if the machine was shutting down when the agent ended. It must return before there is a pool, which would start pods.
func (m *Manager) Resume() {
	if m.Marker.Began() {
		m.Log.Warn("the machine was shutting down when monopod exited: pods are not started; if the shutdown was cancelled, run `monopod undrain`")
		m.Pods.ShutDown(Last(m.Groups))
	}
}

// Run works until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	power := make(chan os.Signal, 1)
	signal.Notify(power, syscall.SIGPWR)
	defer signal.Stop(power)
	listening := make(chan struct{})
	go func() { defer close(listening); m.listen(ctx) }()
	for {
		select {
		case <-ctx.Done():
			<-listening
			return
		case <-power:
			m.stop(ctx, "SIGPWR")
		}
	}
}

// listen follows logind, and reconnects when the connection is lost.
func (m *Manager) listen(ctx context.Context) {
	wait, last := reconnectFirst, ""
	for m.HasLogind() && ctx.Err() == nil {
		l, err := m.Connect(ctx)
		if err == nil {
			wait, last = reconnectFirst, ""
			err = errors.Join(m.follow(ctx, l), l.Close())
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			m.Log.Warn("cannot delay a shutdown of the machine until pods have stopped", "err", err, "retry_in", wait)
		}
		pause.For(ctx, wait)
		wait = min(2*wait, reconnectLast)
	}
}

// follow delays shutdowns until ctx ends or the connection is lost.
func (m *Manager) follow(ctx context.Context, l Logind) error {
	lock, err := m.inhibit(ctx, l)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // the kernel closes it, too
	down, err := l.Preparing(ctx)
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		switch {
		case down:
			m.stop(ctx, "logind")
			if err := lock.Close(); err != nil {
				m.Log.Warn("release the shutdown lock of logind", "err", err)
			}
		case !first || m.Pods.ShuttingDown(): // the shutdown was cancelled
			m.cancelled()
			_ = lock.Close() // it is closed already, unless logind has repeated itself
			if lock, err = m.inhibit(ctx, l); err != nil {
				return err
			}
		}
		if down, err = l.Next(ctx); err != nil {
			return err
		}
	}
}

// inhibit takes the lock, after it has made logind wait long enough for it.
func (m *Manager) inhibit(ctx context.Context, l Logind) (io.Closer, error) {
	most, err := l.DelayMax(ctx)
	if err != nil {
		return nil, err
	}
	if need := total(m.Groups); most < need {
		if err := m.extend(ctx, l, need); err != nil { // less time is better than none
			m.Log.Warn("logind waits for less than shutdownGracePeriod; pods are killed earlier", "inhibitDelayMax", most, "shutdownGracePeriod", need, "err", err)
		}
	}
	return l.Inhibit(ctx)
}

// extend makes logind wait longer.
func (m *Manager) extend(ctx context.Context, l Logind, need time.Duration) error {
	if err := m.AllowDelay(need + delayMargin); err != nil {
		return err
	}
	if err := l.Reload(ctx); err != nil {
		return err
	}
	for deadline := time.Now().Add(reloadTimeout); ; pause.For(ctx, 50*time.Millisecond) {
		most, err := l.DelayMax(ctx)
		switch {
		case err != nil:
			return err
		case most >= need:
			return nil
		case time.Now().After(deadline) || ctx.Err() != nil:
			return fmt.Errorf("logind still waits for %s at most, despite its drop-in", most)
		}
	}
}

// stop stops group after group.
func (m *Manager) stop(ctx context.Context, by string) {
	m.Log.Warn("the machine is shutting down; stopping pods", "by", by, "within", total(m.Groups))
	m.Record(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown event")
	if err := m.Marker.begin(); err != nil {
		m.Log.Warn("record the shutdown of the machine", "err", err)
	}
	m.Pods.ShutDown(&Progress{Groups: m.Groups})
	for i, g := range m.Groups {
		if i > 0 && !m.Pods.Proceed(&Progress{Groups: m.Groups, Current: i}) {
			m.cancelled()
			return
		}
		if left := m.await(ctx, g.Grace); len(left) > 0 && ctx.Err() == nil {
			m.Log.Warn("pods have not stopped in time", "priority", g.Priority, "after", g.Grace, "pods", left)
		}
	}
	if err := m.Marker.end(); err != nil {
		m.Log.Warn("record that pods have stopped", "err", err)
	}
	m.Log.Info("the shutdown may continue")
}

// await waits until the pods that are due have stopped, or their time is over, and returns those that still run.
func (m *Manager) await(ctx context.Context, grace time.Duration) []string {
	changed, cancel := m.Pods.Subscribe()
	defer cancel()
	over := time.NewTimer(grace)
	defer over.Stop()
	for {
		left, seen := m.Pods.Unstopped()
		if len(left) == 0 && seen {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-over.C:
			left, _ = m.Pods.Unstopped()
			return left
		case <-changed:
		}
	}
}

// cancelled lets pods run again.
func (m *Manager) cancelled() {
	m.Log.Warn("the shutdown of the machine was cancelled; pods start again")
	m.Marker.Remove()
	m.Pods.ShutDown(nil)
}
