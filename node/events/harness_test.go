package events

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
)

// machine is a machine with a clock of its own, on which recorders run one after the other.
type machine struct {
	t    *testing.T
	dir  string
	log  *lockedLog
	cfg  Config
	mu   sync.Mutex
	now  boottime.Moment
	rec  *Recorder
	stop func()
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, dir: filepath.Join(fastDir(t), "events"), log: &lockedLog{}}
	m.now = boottime.Moment{Boot: "boot-a", Since: 10 * time.Second, Wall: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	m.cfg = Config{Dir: m.dir, Node: "edge", Now: m.clock, Log: slog.New(slog.NewTextHandler(m.log, nil))}
	return m
}

func (m *machine) clock() boottime.Moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// pass lets time pass on the machine, not in the test.
func (m *machine) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Since += d
	m.now.Wall = m.now.Wall.Add(d)
}

// setClock sets the wall clock.
func (m *machine) setClock(wall time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Wall = wall
}

// reboot begins another boot, with the wall clock at a time.
func (m *machine) reboot(id string, wall time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = boottime.Moment{Boot: id, Since: 5 * time.Second, Wall: wall}
}

// start runs a recorder until stop is called.
func (m *machine) start() *Recorder {
	m.rec = New(m.cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.rec.Run(ctx) }()
	m.stop = func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	}
	return m.rec
}

// session records something with a recorder of its own.
func (m *machine) session(do func(*Recorder)) {
	m.t.Helper()
	r := m.start()
	do(r)
	m.stop()
}

func pod(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name, UID: "uid-of-" + "x"}
}

func warn(r *Recorder, name, reason, message string) {
	r.Event(pod(name), corev1.EventTypeWarning, reason, message)
}

// texts says of each event what, how often and to whom.
func texts(all []corev1.Event) []string {
	var out []string
	for _, e := range all {
		out = append(out, fmt.Sprintf("%s %s %s x%d", e.InvolvedObject.Name, e.Reason, e.Message, e.Count))
	}
	return out
}

// onDisk returns what can be read without a recorder.
func (m *machine) onDisk() []corev1.Event {
	m.t.Helper()
	all, err := readAt(m.clock(), m.dir, Filter{})
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

func (m *machine) wants(got []corev1.Event, want ...string) {
	m.t.Helper()
	if g, w := strings.Join(texts(got), "\n"), strings.Join(want, "\n"); g != w {
		m.t.Errorf("events:\n%s\nwanted:\n%s", g, w)
	}
}

func (m *machine) size(name string) int64 {
	st, err := os.Stat(filepath.Join(m.dir, name))
	if err != nil {
		return 0
	}
	return st.Size()
}

// fastDir returns a directory in memory, where there is one: many tests wait for the disk at each step.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "monopod-events-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
