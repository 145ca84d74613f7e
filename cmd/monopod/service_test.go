package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"monopod/node/systemd"
	"monopod/runner/runtimetest"
)

// serviceManager stands for systemd: it sends what it is told to a channel.
func serviceManager(t *testing.T, watchdog time.Duration) (*systemd.Notifier, <-chan string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	told, over := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(over)
		for b := make([]byte, 1<<12); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			told <- string(b[:n])
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-over })
	t.Setenv("NOTIFY_SOCKET", path)
	n := systemd.FromEnvironment()
	n.Watchdog = watchdog
	return n, told
}

// hear waits for a message that begins with a text.
func hear(t *testing.T, told <-chan string, prefix string) string {
	t.Helper()
	var others []string
	for deadline := time.After(patience); ; {
		select {
		case m := <-told:
			if strings.HasPrefix(m, prefix) {
				return m
			}
			others = append(others, m)
		case <-deadline:
			t.Fatalf("%q was not told, but %q", prefix, others)
		}
	}
}

func TestTheServiceManagerHearsHowTheAgentIs(t *testing.T) {
	n, told := serviceManager(t, 0)
	d := newDaemon(t)
	d.prog.manager = n
	n.Watchdog = 40 * time.Millisecond
	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 1))
	d.start()
	hear(t, told, "READY=1")
	hear(t, told, "WATCHDOG=1")
	hear(t, told, "STATUS=1 pods: 1 running, 0 completed, 0 not")
	if r := d.cmd("drain"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	hear(t, told, "STATUS=1 pods: 0 running, 0 completed, 1 not; drained")
	d.end()
	if m := hear(t, told, "STOPPING=1"); m != "STOPPING=1\nSTATUS=stopping; the pods go on" {
		t.Errorf("told %q", m)
	}
}

func TestTheWatchdogIsNotPingedWhileALoopStandsStill(t *testing.T) {
	n, told := serviceManager(t, 40*time.Millisecond)
	log := &syncBuffer{}
	var stuck atomic.Bool
	stuck.Store(true)
	asked := make(chan struct{}, 100)
	s := &service{
		manager: n, log: slog.New(slog.NewTextHandler(log, nil)), patience: time.Hour,
		changed: func() (<-chan struct{}, func()) { return nil, func() {} },
		status:  func() (string, bool) { return "x", false },
		alive: func(ctx context.Context) error {
			asked <- struct{}{}
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
	for m := hear(t, told, ""); m != "WATCHDOG=1"; m = hear(t, told, "") {
		if m != "STATUS=x" {
			t.Errorf("told %q", m)
		}
	}
	if !strings.Contains(log.String(), "the loop of a test does not go round") {
		t.Error("nothing is logged")
	}
	stop()
	<-ended
	hear(t, told, "STOPPING=1")
}

// A service that cannot look after its pods has started all the same.
func TestAServiceIsReadyThoughItsRuntimeIsNot(t *testing.T) {
	n, told := serviceManager(t, 0)
	s := &service{
		manager: n, log: slog.New(slog.DiscardHandler), patience: 10 * time.Millisecond,
		changed: func() (<-chan struct{}, func()) { return nil, func() {} },
		status:  func() (string, bool) { return "containers cannot be seen: x", false },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.run(ctx); close(ended) }()
	hear(t, told, "STATUS=containers cannot be seen: x")
	hear(t, told, "READY=1")
	stop()
	<-ended
}
