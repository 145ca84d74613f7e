package run

import (
	"context"
	"errors"
	"os"
	"strings"
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

// goingDown is a daemon on a machine with a logind.
func goingDown(t *testing.T, config ...string) (*clitest.Daemon, *clitest.Logind) {
	t.Helper()
	d := newDaemon(t, config...)
	l := &clitest.Logind{Downs: make(chan bool), Most: 5 * time.Second}
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
	l.Allowed = 35 * time.Second
	d.Put("usual.yaml", clitest.PodOfPriority("usual", runtimetest.ScriptServe, 0))
	d.Put("vital.yaml", clitest.PodOfPriority("vital", runtimetest.ScriptServe, runner.CriticalPriority))
	d.Start()
	d.Phase("usual", "Running")
	d.Phase("vital", "Running")
	l.Held(d, 1, 1)
	if text := clitest.ReadFile(t, d.Path("logind", "99-monopod.conf")); !strings.Contains(text, "\nInhibitDelayMaxSec=35\n") || l.Reloaded() != 1 {
		t.Errorf("%d reloads of %s", l.Reloaded(), text)
	}
	d.Fake.Journal()
	l.Downs <- true
	l.Held(d, 0, 1)
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
	l.Held(d, 1, 1)
	l.Downs <- true
	l.Held(d, 0, 1)
	d.Phase("web", "Terminated")
	l.Downs <- false
	l.Held(d, 1, 2)
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
	l.Held(d, 1, 1)
	close(l.Downs) // the bus is restarted
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
