package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"monopod/internal/atomicfile"
)

// Names on the system bus.
const (
	login     = "org.freedesktop.login1"
	loginPath = "/org/freedesktop/login1"
	manager   = login + ".Manager"
	prepare   = "PrepareForShutdown"
	systemd1  = "org.freedesktop.systemd1"
)

// Logind is a connection to logind.
type Logind struct {
	conn *dbus.Conn
	// signals are closed when the connection is lost.
	signals chan *dbus.Signal
}

// ConnectLogind connects to logind by the system bus.
func ConnectLogind(ctx context.Context) (*Logind, error) {
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	l := &Logind{conn: conn, signals: make(chan *dbus.Signal, 8)}
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(manager), dbus.WithMatchMember(prepare))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("follow logind: %w", err), conn.Close())
	}
	conn.Signal(l.signals)
	if _, err := l.property(ctx, "PreparingForShutdown"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return l, nil
}

// Close ends the connection. Locks that were taken by it hold on.
func (l *Logind) Close() error { return l.conn.Close() }

func (l *Logind) property(ctx context.Context, name string) (any, error) {
	var v dbus.Variant
	call := l.conn.Object(login, loginPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name)
	if err := call.Store(&v); err != nil {
		return nil, fmt.Errorf("query %s of logind: %w", name, err)
	}
	return v.Value(), nil
}

// DelayMax is how long logind waits at most for who delays a shutdown.
func (l *Logind) DelayMax(ctx context.Context) (time.Duration, error) {
	v, err := l.property(ctx, "InhibitDelayMaxUSec")
	usec, ok := v.(uint64)
	if err == nil && !ok {
		err = fmt.Errorf("query InhibitDelayMaxUSec of logind: unexpected value %v", v)
	}
	return time.Duration(min(usec, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond, err
}

// Preparing reports whether the machine is shutting down.
func (l *Logind) Preparing(ctx context.Context) (bool, error) {
	v, err := l.property(ctx, "PreparingForShutdown")
	is, _ := v.(bool)
	return is, err
}

// Inhibit delays each shutdown from now on until the lock is closed, or DelayMax is over.
func (l *Logind) Inhibit(ctx context.Context) (io.Closer, error) {
	var fd dbus.UnixFD
	call := l.conn.Object(login, loginPath).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "monopod", "monopod stops its pods before the machine goes down", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("delay shutdowns: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// Reload has logind read its configuration again.
func (l *Logind) Reload(ctx context.Context) error {
	call := l.conn.Object(systemd1, "/org/freedesktop/systemd1").CallWithContext(ctx, systemd1+".Manager.KillUnit", 0, "systemd-logind.service", "all", int32(syscall.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("reload logind: %w", call.Err)
	}
	return nil
}

// Next waits for the next signal of logind: true when a shutdown begins, false when it is cancelled. An error means that the connection is
// lost.
func (l *Logind) Next(ctx context.Context) (bool, error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case s, open := <-l.signals:
			if !open {
				return false, errors.New("the connection to the system bus is lost")
			}
			if down, ok := first(s.Body).(bool); ok && s.Name == manager+"."+prepare {
				return down, nil
			}
		}
	}
}

func first(all []any) any {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// AllowDelay makes logind wait so long, by a drop-in in the first of the directories that can be written. It counts once
// logind has read its configuration again.
func AllowDelay(d time.Duration, dirs ...string) error {
	text := fmt.Sprintf("# Written by monopod, for the time that its pods need at a shutdown (shutdownGracePeriod).\n[Login]\nInhibitDelayMaxSec=%.0f\n", math.Ceil(d.Seconds()))
	var errs []error
	for _, dir := range dirs {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = atomicfile.Write(filepath.Join(dir, DropIn), []byte(text), 0o644)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("raise the shutdown delay of logind: %w", errors.Join(errs...))
}

// RemoveDropIns removes the files of AllowDelay, and reports whether there were any.
func RemoveDropIns(dirs ...string) (removed bool, err error) {
	for _, dir := range dirs {
		switch gone := os.Remove(filepath.Join(dir, DropIn)); {
		case gone == nil:
			removed = true
			_ = os.Remove(dir) // unless there is something in it
		case !errors.Is(gone, fs.ErrNotExist) && !errors.Is(gone, syscall.EROFS):
			err = errors.Join(err, gone)
		}
	}
	return removed, err
}
