package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/testfiles"
	"monopod/node/shutdown"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// standInLogind is a logind with an InhibitDelayMaxSec of 5 s. The VM of .ci/vm-systemd has the real one.
type standInLogind struct {
	next chan bool

	mu       sync.Mutex
	most     time.Duration
	allowed  time.Duration // by the drop-in
	locks    int           // held
	taken    int
	reloaded int
}

type standInLock struct {
	l    *standInLogind
	once sync.Once
}

func (k *standInLock) Close() error {
	k.once.Do(func() {
		k.l.mu.Lock()
		defer k.l.mu.Unlock()
		k.l.locks--
	})
	return nil
}

func (l *standInLogind) DelayMax(context.Context) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most, nil
}

func (l *standInLogind) Preparing(context.Context) (bool, error) { return false, nil }

func (l *standInLogind) Inhibit(context.Context) (io.Closer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks++
	l.taken++
	return &standInLock{l: l}, nil
}

func (l *standInLogind) Reload(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = l.allowed
	l.reloaded++
	return nil
}

func (l *standInLogind) Next(ctx context.Context) (bool, error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case down, open := <-l.next:
		if !open {
			return false, errors.New("the bus is gone")
		}
		return down, nil
	}
}

func (l *standInLogind) Close() error { return nil }

// held waits until so many locks are held.
func (l *standInLogind) held(d *testDaemon, locks, taken int) {
	d.t.Helper()
	d.eventually(fmt.Sprintf("%d locks are held", locks), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.locks != locks || l.taken != taken {
			return fmt.Errorf("%d are, of %d", l.locks, l.taken)
		}
		return nil
	})
}

// goingDown is a daemon on a machine with a logind.
func goingDown(t *testing.T, config ...string) (*testDaemon, *standInLogind) {
	t.Helper()
	d := newDaemon(t, config...)
	l := &standInLogind{next: make(chan bool), most: 5 * time.Second}
	h, _ := standInHost(t, d.dir, false)
	tries := 0
	h.Connect = func(context.Context) (shutdown.Logind, error) {
		if tries++; tries == 1 && strings.Contains(t.Name(), "Later") {
			return nil, errors.New("no bus yet")
		}
		return l, nil
	}
	d.prog.Host = h
	return d, l
}

func TestAShutdownStopsPodsByPriorityThenLetsTheMachineGo(t *testing.T) {
	t.Parallel()
	d, l := goingDown(t, "shutdownGracePeriod: 30s", "shutdownGracePeriodCriticalPods: 10s")
	l.mu.Lock()
	l.allowed = 35 * time.Second
	l.mu.Unlock()
	d.put("usual.yaml", podText("usual", runtimetest.ScriptServe, 0))
	d.put("vital.yaml", podText("vital", runtimetest.ScriptServe, runner.CriticalPriority))
	d.start()
	d.phase("usual", "Running")
	d.phase("vital", "Running")
	l.held(d, 1, 1)
	if text := readFile(t, d.path("logind", "99-monopod.conf")); !strings.Contains(text, "\nInhibitDelayMaxSec=35\n") || l.reloaded != 1 {
		t.Errorf("%d reloads of %s", l.reloaded, text)
	}
	d.fake.Journal()
	l.next <- true
	l.held(d, 0, 1)
	var stopped []string
	for _, e := range d.fake.Journal() {
		if e.Action.Kind == runner.StopContainer {
			stopped = append(stopped, e.Key.Name)
		}
	}
	if strings.Join(stopped, " ") != "usual vital" {
		t.Errorf("stopped %v", stopped)
	}
	d.put("late.yaml", podText("late", runtimetest.ScriptServe, 0))
	d.phase("usual", "Terminated")
	d.phase("vital", "Terminated")
	d.phase("late", "NodeShutdown")
	if r := d.cmd("get", "pods", "-o", "json"); !strings.Contains(r.stdout, runner.MessageTerminated) || !strings.Contains(r.stdout, `"reason": "TerminationByKubelet"`) {
		t.Errorf("%s", r.stdout)
	}
	if r := d.cmd("get", "pods"); !strings.Contains(r.stderr, "This machine is shutting down") {
		t.Errorf("%s", r.stderr)
	}
	marker := readFile(t, d.path("root", "graceful_node_shutdown_state"))
	if !strings.Contains(marker, `"startTime":"`) || !strings.Contains(marker, `"endTime":"`) {
		t.Errorf("marker %s", marker)
	}
	// It is started again while the machine goes down: nothing is started.
	d.end()
	d.prog.Host.Booted = d.path("none") // it is too late for logind
	open := d.prog.Machine.Open
	d.prog.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
		if !strings.Contains(d.log.String(), "the machine was shutting down when monopod ended") {
			t.Error("pods could be started before it is known that the machine is going down")
		}
		return open(ctx, cfg, deps)
	}
	d.start()
	d.phase("usual", "Terminated")
	d.phase("late", "NodeShutdown")
	// The machine has been started again: another boot.
	d.end()
	d.prog.Machine.Open = open
	testfiles.Write(t, d.path("root", "graceful_node_shutdown_state"), strings.Replace(marker, `"boot":"`, `"boot":"another-`, 1))
	d.start()
	for _, name := range []string{"usual", "vital", "late"} {
		d.phase(name, "Running")
	}
}

func TestAShutdownThatIsCancelledLetsPodsRunAgain(t *testing.T) {
	t.Parallel()
	d, l := goingDown(t, "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 3}]")
	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 0))
	d.start()
	d.phase("web", "Running")
	l.held(d, 1, 1)
	l.next <- true
	l.held(d, 0, 1)
	d.phase("web", "Terminated")
	l.next <- false
	l.held(d, 1, 2)
	d.phase("web", "Running")
	if _, err := os.Stat(d.path("root", "graceful_node_shutdown_state")); !os.IsNotExist(err) {
		t.Errorf("the marker stays: %v", err)
	}
}

func TestLogindIsFoundLater(t *testing.T) {
	t.Parallel()
	d, l := goingDown(t, "shutdownGracePeriod: 2s")
	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 0))
	d.start()
	d.phase("web", "Running")
	l.held(d, 1, 1)
	close(l.next) // the bus is restarted
	d.eventually("the lock is lost", func() error {
		if !strings.Contains(d.log.String(), "the bus is gone") {
			return errors.New("it is not")
		}
		return nil
	})
}

func TestWithoutLogindASignalStopsPods(t *testing.T) {
	d, _ := goingDown(t, "shutdownGracePeriod: 1s")
	d.prog.Host.Booted = d.path("none")
	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 0))
	d.start()
	d.phase("web", "Running")
	if err := syscall.Kill(os.Getpid(), syscall.SIGPWR); err != nil {
		t.Fatal(err)
	}
	d.phase("web", "Terminated")
	d.eventually("it is over", func() error {
		if !strings.Contains(d.log.String(), "the machine may go down") {
			return errors.New("it is not")
		}
		return nil
	})
	if r := d.cmd("undrain"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	d.phase("web", "Running")
	if _, err := os.Stat(d.path("root", "graceful_node_shutdown_state")); !os.IsNotExist(err) {
		t.Errorf("the marker stays: %v", err)
	}
}
