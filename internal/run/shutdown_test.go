package run

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
	"monopod/internal/daemontest/clitest"
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
func (l *standInLogind) held(d *clitest.Daemon, locks, taken int) {
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

// goingDown is a daemon on a machine with a logind.
func goingDown(t *testing.T, config ...string) (*clitest.Daemon, *standInLogind) {
	t.Helper()
	d := newDaemon(t, config...)
	l := &standInLogind{next: make(chan bool), most: 5 * time.Second}
	h, _ := clitest.StandInHost(t, d.Dir, false)
	tries := 0
	h.Connect = func(context.Context) (shutdown.Logind, error) {
		if tries++; tries == 1 && strings.Contains(t.Name(), "Later") {
			return nil, errors.New("no bus yet")
		}
		return l, nil
	}
	d.Prog.Host = h
	return d, l
}

func TestAShutdownStopsPodsByPriorityThenLetsTheMachineGo(t *testing.T) {
	t.Parallel()
	d, l := goingDown(t, "shutdownGracePeriod: 30s", "shutdownGracePeriodCriticalPods: 10s")
	l.mu.Lock()
	l.allowed = 35 * time.Second
	l.mu.Unlock()
	d.Put("usual.yaml", clitest.PodOfPriority("usual", runtimetest.ScriptServe, 0))
	d.Put("vital.yaml", clitest.PodOfPriority("vital", runtimetest.ScriptServe, runner.CriticalPriority))
	d.Start()
	d.Phase("usual", "Running")
	d.Phase("vital", "Running")
	l.held(d, 1, 1)
	if text := clitest.ReadFile(t, d.Path("logind", "99-monopod.conf")); !strings.Contains(text, "\nInhibitDelayMaxSec=35\n") || l.reloaded != 1 {
		t.Errorf("%d reloads of %s", l.reloaded, text)
	}
	d.Fake.Journal()
	l.next <- true
	l.held(d, 0, 1)
	var stopped []string
	for _, e := range d.Fake.Journal() {
		if e.Action.Kind == runner.StopContainer {
			stopped = append(stopped, e.Key.Name)
		}
	}
	if strings.Join(stopped, " ") != "usual vital" {
		t.Errorf("stopped %v", stopped)
	}
	d.Put("late.yaml", clitest.PodOfPriority("late", runtimetest.ScriptServe, 0))
	d.Phase("usual", "Terminated")
	d.Phase("vital", "Terminated")
	d.Phase("late", "NodeShutdown")
	if r := d.Cmd("get", "pods", "-o", "json"); !strings.Contains(r.Stdout, runner.MessageTerminated) || !strings.Contains(r.Stdout, `"reason": "TerminationByKubelet"`) {
		t.Errorf("%s", r.Stdout)
	}
	if r := d.Cmd("get", "pods"); !strings.Contains(r.Stderr, "This machine is shutting down") {
		t.Errorf("%s", r.Stderr)
	}
	marker := clitest.ReadFile(t, d.Path("root", "graceful_node_shutdown_state"))
	if !strings.Contains(marker, `"startTime":"`) || !strings.Contains(marker, `"endTime":"`) {
		t.Errorf("marker %s", marker)
	}
	// It is started again while the machine goes down: nothing is started.
	d.End()
	d.Prog.Host.Booted = d.Path("none") // it is too late for logind
	open := d.Prog.Machine.Open
	d.Prog.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
		if !strings.Contains(d.Log.String(), "the machine was shutting down when monopod exited") {
			t.Error("pods could be started before it is known that the machine is going down")
		}
		return open(ctx, cfg, deps)
	}
	d.Start()
	d.Phase("usual", "Terminated")
	d.Phase("late", "NodeShutdown")
	// The machine has been started again: another boot.
	d.End()
	d.Prog.Machine.Open = open
	testfiles.Write(t, d.Path("root", "graceful_node_shutdown_state"), strings.Replace(marker, `"boot":"`, `"boot":"another-`, 1))
	d.Start()
	for _, name := range []string{"usual", "vital", "late"} {
		d.Phase(name, "Running")
	}
}

func TestAShutdownThatIsCancelledLetsPodsRunAgain(t *testing.T) {
	t.Parallel()
	d, l := goingDown(t, "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 3}]")
	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 0))
	d.Start()
	d.Phase("web", "Running")
	l.held(d, 1, 1)
	l.next <- true
	l.held(d, 0, 1)
	d.Phase("web", "Terminated")
	l.next <- false
	l.held(d, 1, 2)
	d.Phase("web", "Running")
	if _, err := os.Stat(d.Path("root", "graceful_node_shutdown_state")); !os.IsNotExist(err) {
		t.Errorf("the marker stays: %v", err)
	}
}

func TestLogindIsFoundLater(t *testing.T) {
	t.Parallel()
	d, l := goingDown(t, "shutdownGracePeriod: 2s")
	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 0))
	d.Start()
	d.Phase("web", "Running")
	l.held(d, 1, 1)
	close(l.next) // the bus is restarted
	d.Eventually("the lock is lost", func() error {
		if !strings.Contains(d.Log.String(), "the bus is gone") {
			return errors.New("it is not")
		}
		return nil
	})
}

func TestWithoutLogindASignalStopsPods(t *testing.T) {
	d, _ := goingDown(t, "shutdownGracePeriod: 1s")
	d.Prog.Host.Booted = d.Path("none")
	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 0))
	d.Start()
	d.Phase("web", "Running")
	if err := syscall.Kill(os.Getpid(), syscall.SIGPWR); err != nil {
		t.Fatal(err)
	}
	d.Phase("web", "Terminated")
	d.Eventually("it is over", func() error {
		if !strings.Contains(d.Log.String(), "the shutdown may continue") {
			return errors.New("it is not")
		}
		return nil
	})
	if r := d.Cmd("undrain"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	d.Phase("web", "Running")
	if _, err := os.Stat(d.Path("root", "graceful_node_shutdown_state")); !os.IsNotExist(err) {
		t.Errorf("the marker stays: %v", err)
	}
}
