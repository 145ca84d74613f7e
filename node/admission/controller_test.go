package admission

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monopod/manifests"
	"monopod/node/drain"
	"monopod/node/localapi"
	"monopod/node/shutdown"
	"monopod/runner"
)

// machine has pods that stop on request of a test.
type machine struct {
	*Controller
	pods    []drain.Pod
	err     error
	changed chan struct{}
	rule    func(*manifests.Pod) runner.Rule
	records []string
	cleaned int
}

func newMachine(t *testing.T, pods ...drain.Pod) *machine {
	t.Helper()
	m := &machine{pods: pods, changed: make(chan struct{}, 1)}
	m.Controller = New(Config{
		Store:     drain.NewStore(filepath.Join(t.TempDir(), "drain.json"), "boot"),
		Pods:      func() ([]drain.Pod, error) { return slices.Clone(m.pods), m.err },
		Subscribe: func() (<-chan struct{}, func()) { return m.changed, func() {} },
		Changed:   func() {}, Record: func(_, reason, _ string) { m.records = append(m.records, reason) }, Log: slog.New(slog.DiscardHandler),
	})
	m.Attach(Pool{
		SetRule: func(r func(*manifests.Pod) runner.Rule) { m.rule = r },
		Cleanup: func(context.Context) error { m.cleaned++; return nil },
	})
	return m
}

func pod(name string, priority int32) drain.Pod {
	return drain.Pod{Key: manifests.Key{Namespace: "default", Name: name}, Priority: priority}
}

// halted returns the names of the pods that have to stop now.
func (m *machine) halted() string {
	var names []string
	for _, p := range m.pods {
		if m.rule != nil && m.rule(testPod(p.Key.Name, p.Priority)).Halt != nil {
			names = append(names, p.Key.Name)
		}
	}
	return strings.Join(names, " ")
}

// stop stops a pod and lets Run follow.
func (m *machine) stop(name string) {
	for i := range m.pods {
		if m.pods[i].Key.Name == name {
			m.pods[i].Stopped = true
		}
	}
	m.changed <- struct{}{}
	synctest.Wait()
}

func TestDrainGoesFromPriorityToPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		m := newMachine(t, pod("high", 100), pod("low", 0), pod("lower", -5), pod("spared", 0))
		ended := make(chan struct{})
		go func() { defer close(ended); m.Run(ctx) }()
		s, err := m.Drain(localapi.DrainRequest{Ignore: []string{"spared"}})
		if err != nil || !s.Drained || !s.Cordoned || !slices.Equal(s.Stopping, []string{"default/high", "default/low", "default/lower"}) {
			t.Errorf("%+v, %v", s, err)
		}
		synctest.Wait()
		for _, step := range []struct{ halted, stops string }{{"lower", "lower"}, {"low lower", "low"}, {"high low lower", "high"}} {
			if got := m.halted(); got != step.halted {
				t.Errorf("before %s has stopped: %s stop", step.stops, got)
			}
			m.stop(step.stops)
		}
		if err := m.Beat(ctx); err != nil {
			t.Error(err)
		}
		if left := m.Schedule().Stopping; len(left) > 0 {
			t.Errorf("%v still run", left)
		}
		if s, err := m.Undrain(); err != nil || s.Cordoned || m.rule != nil {
			t.Errorf("undrain: %+v, %v", s, err)
		}
		if want := []string{"Draining", "NodeSchedulable"}; !slices.Equal(m.records, want) {
			t.Errorf("events %v", m.records)
		}
		end()
		<-ended
	})
}

func TestDrainIsStoredBeforeItTakesEffect(t *testing.T) {
	m := newMachine(t, pod("web", 0))
	if _, err := m.Drain(localapi.DrainRequest{Ignore: []string{"["}}); err == nil || m.rule != nil {
		t.Errorf("a wrong pattern: %v", err)
	}
	if _, err := m.Cordon(localapi.DrainRequest{UntilBoot: true}); err != nil {
		t.Fatal(err)
	}
	again := New(m.cfg)
	if again.Load(); !again.Schedule().Cordoned || !again.Schedule().UntilBoot {
		t.Errorf("after a restart: %+v", again.Schedule())
	}
	m.cfg.Store = drain.NewStore(filepath.Join(t.TempDir(), "none", "drain.json"), "boot")
	if _, err := m.Drain(localapi.DrainRequest{}); err == nil || m.Schedule().Drained {
		t.Errorf("it could not be stored: %v", err)
	}
}

func TestUnknownPodsAreReported(t *testing.T) {
	m := newMachine(t)
	m.err = errors.New("containers\ncannot be seen")
	s, err := m.Drain(localapi.DrainRequest{})
	if err != nil || s.Unseen == "" || strings.Contains(s.Unseen, "\n") {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestShutdownEndsWithAnUndrain(t *testing.T) {
	m := newMachine(t, pod("web", 0), pod("critical", runner.CriticalPriority))
	groups := []shutdown.Group{{Grace: time.Second}, {Priority: runner.CriticalPriority, Grace: time.Second}}
	if names, seen := m.Unstopped(); len(names) > 0 || !seen {
		t.Errorf("no shutdown: %v %v", names, seen)
	}
	m.ShutDown(&shutdown.Progress{Groups: groups})
	if names, seen := m.Unstopped(); !slices.Equal(names, []string{"default/web"}) || !seen || m.halted() != "web" {
		t.Errorf("first group: %v %v", names, seen)
	}
	if !m.Proceed(shutdown.Last(groups)) {
		t.Error("the shutdown does not proceed")
	}
	if names, _ := m.Unstopped(); len(names) != 2 || m.halted() != "web critical" {
		t.Errorf("last group: %v", names)
	}
	if cordoned, down := m.Closed(); cordoned || !down || !m.ShuttingDown() || !m.Schedule().ShuttingDown {
		t.Errorf("closed: %v %v", cordoned, down)
	}
	if _, err := m.Undrain(); err != nil || m.ShuttingDown() || m.rule != nil {
		t.Errorf("undrain: %v", err)
	}
	if m.Proceed(shutdown.Last(groups)) || m.ShuttingDown() || m.rule != nil {
		t.Error("the shutdown proceeds after the undrain")
	}
}

func TestHandOverWaitsForAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, pod("web", 0), pod("critical", runner.CriticalPriority))
		done := make(chan struct{})
		go func() { defer close(done); m.HandOver(t.Context()) }()
		synctest.Wait()
		if got := m.halted(); got != "web critical" || m.cleaned != 0 {
			t.Errorf("%s stop, cleaned %d times", got, m.cleaned)
		}
		m.stop("web")
		m.stop("critical")
		<-done
		if m.cleaned != 1 {
			t.Errorf("cleaned %d times", m.cleaned)
		}
	})
}
