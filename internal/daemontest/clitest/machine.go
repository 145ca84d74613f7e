package clitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/internal/host"
	"monopod/internal/testfiles"
)

// StandInHost is a machine with systemd in a directory; calls are those of systemctl.
func StandInHost(t testing.TB, dir string, whole bool) (h host.Host, calls func() string) {
	t.Helper()
	exe := filepath.Join(dir, "download", "monopod")
	for _, d := range []string{"units", "booted", "download"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testfiles.Write(t, exe, "the program")
	var all []string
	h = host.Host{
		Units: filepath.Join(dir, "units"), Booted: filepath.Join(dir, "booted"), Logind: []string{filepath.Join(dir, "logind")},
		Self: func() (string, bool, error) { return exe, whole, nil }, Unpacked: func() string { return "" },
		Systemctl: func(_ context.Context, args ...string) error {
			all = append(all, strings.Join(args, " "))
			return nil
		},
	}
	return h, func() string {
		defer func() { all = nil }()
		return strings.Join(all, "\n")
	}
}

// Socket returns the path of a socket that does not exist yet, in a directory of its own.
func Socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// ServeOn serves on a socket of its own.
func ServeOn(t testing.TB, h http.Handler) string {
	t.Helper()
	socket := Socket(t)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() { _, _ = s.Close(), <-done })
	return socket
}

// SilentDaemon accepts connections and never answers.
func SilentDaemon(t testing.TB) string {
	t.Helper()
	socket := Socket(t)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return socket
}

// Logind is a logind whose InhibitDelayMaxSec is Most. The VM of .ci/vm-systemd has the real one.
type Logind struct {
	// Downs has each change of what is going on: the machine goes down, or does not after all. When it is closed, the bus is gone.
	Downs chan bool
	// Allowed becomes Most when the configuration is read again.
	Most, Allowed time.Duration

	mu       sync.Mutex
	locks    int // held
	taken    int
	reloaded int
}

type inhibitor struct {
	l    *Logind
	once sync.Once
}

// Close releases the lock.
func (k *inhibitor) Close() error {
	k.once.Do(func() {
		k.l.mu.Lock()
		defer k.l.mu.Unlock()
		k.l.locks--
	})
	return nil
}

// DelayMax returns Most.
func (l *Logind) DelayMax(context.Context) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Most, nil
}

// Preparing reports false.
func (l *Logind) Preparing(context.Context) (bool, error) { return false, nil }

// Inhibit takes a lock.
func (l *Logind) Inhibit(context.Context) (io.Closer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks++
	l.taken++
	return &inhibitor{l: l}, nil
}

// Reload makes Most Allowed.
func (l *Logind) Reload(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Most = l.Allowed
	l.reloaded++
	return nil
}

// Next waits for Downs.
func (l *Logind) Next(ctx context.Context) (bool, error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case down, open := <-l.Downs:
		if !open {
			return false, errors.New("the bus is gone")
		}
		return down, nil
	}
}

// Close does nothing.
func (l *Logind) Close() error { return nil }

// Reloaded returns how often the configuration was read again.
func (l *Logind) Reloaded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reloaded
}

// Held waits until so many locks are held, of so many that were taken.
func (l *Logind) Held(d *Daemon, locks, taken int) {
	d.T.Helper()
	d.Eventually(fmt.Sprintf("%d locks are held", locks), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.locks != locks || l.taken != taken {
			return fmt.Errorf("%d are, of %d", l.locks, l.taken)
		}
		return nil
	})
}
