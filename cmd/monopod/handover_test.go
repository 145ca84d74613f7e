package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/node/lockfile"
	"monopod/runner/runtimetest"
)

// leaves waits until the daemon has ended by itself.
func (d *testDaemon) leaves() {
	d.t.Helper()
	select {
	case code := <-d.code:
		if d.stop = nil; code != 0 {
			d.t.Errorf("the daemon ended with code %d:\n%s", code, d.log)
		}
	case <-time.After(d.patience):
		d.t.Fatalf("the daemon does not end:\n%s", d.log)
	}
}

func TestAnotherAgentGetsTheMachineWithoutPods(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		d := newDaemon(t, "lockFile: lock", "exitOnLockContention: true", "lockContentionPods: "+map[bool]string{true: "Keep", false: "Stop"}[keep])
		d.put("web.yaml", podText("web", runtimetest.ScriptServe, 0))
		d.start()
		d.phase("web", "Running")
		waited := false
		lock, err := lockfile.Acquire(t.Context(), d.path("lock"), func() { waited = true })
		if err != nil || !waited {
			t.Fatalf("waited %v, %v", waited, err)
		}
		if keys, err := d.fake.List(t.Context()); err != nil || (len(keys) > 0) != keep {
			t.Errorf("keep %v: the other finds %v, %v", keep, keys, err)
		}
		d.leaves()
		if !keep && strings.Contains(d.log.String(), "the pods keep running") {
			t.Error("it says that pods keep running")
		}
		// The next one waits, and takes over when the other has gone.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.eventually("it waits", func() error {
				if strings.Contains(d.log.String(), "waiting for its lock file") {
					return nil
				}
				return errors.New("it does not")
			})
			if _, err := os.Stat(d.path("run", "monopod.sock")); !os.IsNotExist(err) {
				t.Errorf("it has begun: %v", err)
			}
			_ = lock.Close()
		}()
		d.start()
		<-ended
		d.phase("web", "Running")
		d.end()
	}
}

func TestWhoWaitsForTheLockFileEndsWhenAsked(t *testing.T) {
	n, told := daemontest.ServiceManager(t, 20*time.Millisecond)
	d := newDaemon(t, "lockFile: lock")
	d.prog.Manager = n
	lock, err := lockfile.Acquire(t.Context(), d.path("lock"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	d.startOnly()
	told.Wait(t, "READY=1\nSTATUS=waiting for "+d.path("lock"))
	told.Wait(t, "WATCHDOG=1")
	d.end()
}
