package shutdown

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakePods has one pod in each group; pods of the groups in stuck never stop.
type fakePods struct {
	progress []*Progress
	stuck    []int
	unseen   bool
	// undrained reports that the shutdown is cancelled while the first group stops.
	undrained bool
}

func (f *fakePods) ShutDown(p *Progress) { f.progress = append(f.progress, p) }

func (f *fakePods) Proceed(p *Progress) bool {
	if !f.ShuttingDown() {
		return false
	}
	f.ShutDown(p)
	return true
}

func (f *fakePods) ShuttingDown() bool {
	return len(f.progress) > 0 && f.progress[len(f.progress)-1] != nil
}

func (f *fakePods) Unstopped() (names []string, seen bool) {
	if f.undrained {
		f.ShutDown(nil)
		return nil, true
	}
	for _, group := range f.stuck {
		if group <= f.progress[len(f.progress)-1].Current {
			names = append(names, "default/stuck")
		}
	}
	return names, !f.unseen
}

func (f *fakePods) Subscribe() (<-chan struct{}, func()) { return make(chan struct{}), func() {} }

// fakeLogind waits for most; its words are what Next returns, one after the other.
type fakeLogind struct {
	most    time.Duration
	allowed time.Duration
	words   chan bool
	locks   int
}

func (l *fakeLogind) DelayMax(context.Context) (time.Duration, error) { return l.most, nil }
func (l *fakeLogind) Preparing(context.Context) (bool, error)         { return false, nil }
func (l *fakeLogind) Inhibit(context.Context) (io.Closer, error)      { l.locks++; return lock{l}, nil }

func (l *fakeLogind) Reload(context.Context) error { l.most = l.allowed; return nil }
func (l *fakeLogind) Close() error                 { return nil }

func (l *fakeLogind) Next(ctx context.Context) (bool, error) {
	select {
	case down, ok := <-l.words:
		if !ok {
			return false, errors.New("connection lost")
		}
		return down, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

type lock struct{ l *fakeLogind }

func (c lock) Close() error { c.l.locks--; return nil }

func newManager(t *testing.T, pods *fakePods, l *fakeLogind, log io.Writer) *Manager {
	t.Helper()
	return &Manager{
		Pods: pods, Groups: []Group{{Grace: 20 * time.Second}, {Priority: 100, Grace: 10 * time.Second}}, Log: slog.New(slog.NewTextHandler(log, nil)),
		Marker:  Marker{Path: filepath.Join(t.TempDir(), "marker"), Boot: "boot"},
		Connect: func(context.Context) (Logind, error) { return l, nil }, HasLogind: func() bool { return true },
		AllowDelay: func(d time.Duration) error { l.allowed = d; return nil }, Record: func(string, string, string) {},
	}
}

func TestPodsThatDoNotStopInTimeAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		pods := &fakePods{stuck: []int{1}}
		m := newManager(t, pods, &fakeLogind{}, &log)
		began := time.Now()
		m.stop(t.Context(), "a test")
		if len(pods.progress) != 2 || pods.progress[0].Current != 0 || pods.progress[1].Current != 1 {
			t.Errorf("%d groups: %+v", len(pods.progress), pods.progress)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %v: only the group that is stuck is waited for", took)
		}
		if !strings.Contains(log.String(), "default/stuck") || !strings.Contains(log.String(), "the shutdown may continue") {
			t.Errorf("%s", &log)
		}
	})
}

func TestACancelledShutdownStopsNoFurtherGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		pods := &fakePods{undrained: true}
		newManager(t, pods, &fakeLogind{}, &log).stop(t.Context(), "a test")
		if len(pods.progress) < 2 || slices.ContainsFunc(pods.progress[1:], func(p *Progress) bool { return p != nil }) || !strings.Contains(log.String(), "was cancelled") || strings.Contains(log.String(), "may continue") {
			t.Errorf("%+v\n%s", pods.progress, &log)
		}
	})
}

func TestUnknownPodsAreWaitedForUntilTheGracePeriodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &fakePods{unseen: true}, &fakeLogind{}, io.Discard)
		m.Marker.Path = filepath.Join(t.TempDir(), "none", "marker") // it cannot be written, which must not matter
		began := time.Now()
		m.stop(t.Context(), "a test")
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestShutdownIsDelayedUntilPodsHaveStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		pods, l := &fakePods{}, &fakeLogind{most: 5 * time.Second, words: make(chan bool)}
		m := newManager(t, pods, l, io.Discard)
		ended := make(chan struct{})
		go func() { defer close(ended); m.listen(ctx) }()
		synctest.Wait()
		if l.locks != 1 || l.allowed != 30*time.Second+delayMargin {
			t.Errorf("%d locks, logind may wait for %v", l.locks, l.allowed)
		}
		l.words <- true
		synctest.Wait()
		if l.locks != 0 || !pods.ShuttingDown() || !m.Marker.Began() {
			t.Errorf("shutdown: %d locks, %v, marker %v", l.locks, pods.progress, m.Marker.Began())
		}
		l.words <- false
		synctest.Wait()
		if l.locks < 0 || pods.ShuttingDown() || m.Marker.Began() {
			t.Errorf("cancelled: %d locks, %v, marker %v", l.locks, pods.progress, m.Marker.Began())
		}
		stop()
		<-ended
	})
}

func TestConnectionToLogindIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l := &fakeLogind{most: time.Hour, words: make(chan bool)}
		m := newManager(t, &fakePods{}, l, io.Discard)
		var tries []time.Duration
		began := time.Now()
		m.Connect = func(context.Context) (Logind, error) {
			tries = append(tries, time.Since(began))
			if len(tries) < 4 {
				return nil, errors.New("no bus")
			}
			return l, nil
		}
		ended := make(chan struct{})
		go func() { defer close(ended); m.listen(ctx) }()
		time.Sleep(time.Minute)
		stop()
		<-ended
		if want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(tries, want) {
			t.Errorf("tries after %v", tries)
		}
	})
}

func TestShutdownGoesOnAfterARestartOfTheAgent(t *testing.T) {
	pods := &fakePods{}
	m := newManager(t, pods, &fakeLogind{}, io.Discard)
	m.Resume()
	if len(pods.progress) != 0 {
		t.Errorf("no shutdown has begun: %v", pods.progress)
	}
	if err := m.Marker.begin(); err != nil {
		t.Fatal(err)
	}
	m.Resume()
	if _, due := pods.progress[0].Due(2000000000); !due {
		t.Error("critical pods start")
	}
}
