package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monopod/node/systemd"
	"monopod/runner/runtimetest"
)

// hearer stands for systemd: it keeps what it is told until somebody asks for it.
type hearer struct {
	mu   sync.Mutex
	said []string
	more chan struct{}
}

func serviceManager(t *testing.T, watchdog time.Duration) (*systemd.Notifier, *hearer) {
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
	h, over := &hearer{more: make(chan struct{}, 1)}, make(chan struct{})
	go func() {
		defer close(over)
		for b := make([]byte, 1<<12); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			h.keep(string(b[:n]))
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-over })
	return &systemd.Notifier{Socket: path, Watchdog: watchdog}, h
}

// keep takes one message in.
func (h *hearer) keep(m string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.said, m) { // pings do not end
		h.said = append(h.said, m)
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// take is the first message that begins with a text; what else was said is left for who asks for that: a pod may run before the
// agent is ready, or after.
func (h *hearer) take(prefix string) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.said, func(m string) bool { return strings.HasPrefix(m, prefix) })
	if i < 0 {
		return "", false
	}
	m := h.said[i]
	h.said = slices.Delete(h.said, i, i+1)
	return m, true
}

// hear waits for a message that begins with a text.
func (h *hearer) hear(t *testing.T, prefix string) string {
	t.Helper()
	for deadline := time.After(patience); ; {
		if m, ok := h.take(prefix); ok {
			return m
		}
		select {
		case <-h.more:
		case <-deadline:
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("%q was not told, but %q", prefix, h.said)
		}
	}
}

func TestTheServiceManagerHearsHowTheAgentIs(t *testing.T) {
	t.Parallel()
	n, told := serviceManager(t, 0)
	d := newDaemon(t)
	d.prog.manager = n
	n.Watchdog = 200 * time.Millisecond // of which an answer may take a quarter
	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 1))
	d.start()
	told.hear(t, "READY=1")
	told.hear(t, "WATCHDOG=1")
	told.hear(t, "STATUS=1 pods: 1 running, 0 completed, 0 not")
	if r := d.cmd("drain"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	told.hear(t, "STATUS=1 pods: 0 running, 0 completed, 1 not; drained")
	d.end()
	if m := told.hear(t, "STOPPING=1"); m != "STOPPING=1\nSTATUS=stopping; the pods go on" {
		t.Errorf("told %q", m)
	}
}

func TestTheWatchdogIsNotPingedWhileALoopStandsStill(t *testing.T) {
	t.Parallel()
	n, told := serviceManager(t, 40*time.Millisecond)
	log := &syncBuffer{}
	var stuck atomic.Bool
	stuck.Store(true)
	asked := make(chan struct{}, 3)
	s := &service{
		manager: n, log: slog.New(slog.NewTextHandler(log, nil)), patience: time.Hour,
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
	for m := told.hear(t, ""); m != "WATCHDOG=1"; m = told.hear(t, "") {
		if m != "STATUS=x" {
			t.Errorf("told %q", m)
		}
	}
	if !strings.Contains(log.String(), "the loop of a test does not go round") {
		t.Error("nothing is logged")
	}
	stop()
	<-ended
	told.hear(t, "STOPPING=1")
}

// A service that cannot look after its pods has started all the same.
func TestAServiceIsReadyThoughItsRuntimeIsNot(t *testing.T) {
	t.Parallel()
	n, told := serviceManager(t, 0)
	s := &service{
		manager: n, log: slog.New(slog.DiscardHandler), patience: 10 * time.Millisecond,
		changed: func() (<-chan struct{}, func()) { return nil, func() {} },
		status:  func() (string, bool) { return "containers cannot be seen: x", false },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.run(ctx); close(ended) }()
	told.hear(t, "STATUS=containers cannot be seen: x")
	told.hear(t, "READY=1")
	stop()
	<-ended
}
