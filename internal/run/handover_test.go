package run

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/node/lockfile"
	"monopod/runner/runtimetest"
)

func TestAnotherAgentGetsTheMachineWithoutPods(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		d := newDaemon(t, "lockFile: lock", "exitOnLockContention: true", "lockContentionPods: "+map[bool]string{true: "Keep", false: "Stop"}[keep])
		d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 0))
		file, err := os.OpenFile(d.Path("lock"), os.O_RDWR|os.O_CREATE, 0o600) // before the agent can notice it
		if err != nil {
			t.Fatal(err)
		}
		d.Start()
		d.Phase("web", "Running")
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("the agent does not have the lock: %v", err)
		}
		_ = file.Close()
		lock, err := lockfile.Acquire(t.Context(), d.Path("lock"), func() {}) // waits, unless the agent notices and leaves faster
		if err != nil {
			t.Fatal(err)
		}
		if keys, err := d.Fake.List(t.Context()); err != nil || (len(keys) > 0) != keep {
			t.Errorf("keep %v: the other finds %v, %v", keep, keys, err)
		}
		d.Leaves()
		if !keep && strings.Contains(d.Log.String(), "the pods keep running") {
			t.Error("it says that pods keep running")
		}
		// The next one waits, and takes over when the other has gone.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.Eventually("it waits", func() error {
				if strings.Contains(d.Log.String(), "waiting for its lock file") {
					return nil
				}
				return errors.New("it does not")
			})
			if _, err := os.Stat(d.Path("run", "monopod.sock")); !os.IsNotExist(err) {
				t.Errorf("it has begun: %v", err)
			}
			_ = lock.Close()
		}()
		d.Start()
		<-ended
		d.Phase("web", "Running")
		d.End()
	}
}

func TestWhoWaitsForTheLockFileEndsWhenAsked(t *testing.T) {
	n, told := daemontest.ServiceManager(t, 20*time.Millisecond)
	d := newDaemon(t, "lockFile: lock")
	d.Prog.Manager = n
	lock, err := lockfile.Acquire(t.Context(), d.Path("lock"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	d.StartOnly()
	told.Wait(t, "READY=1\nSTATUS=waiting for "+d.Path("lock"))
	told.Wait(t, "WATCHDOG=1")
	d.End()
}
