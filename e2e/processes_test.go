//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// processWith waits until a container of the instance has a process with this command line, and returns it.
func (in *instance) processWith(cmdline string) process {
	in.t.Helper()
	var found process
	in.eventually("there is a process "+cmdline, func() error {
		for _, p := range in.table() {
			if p.mine && strings.TrimSpace(p.cmdline) == cmdline {
				found = p
				return nil
			}
		}
		return errors.New("there is none")
	})
	return found
}

// TestASharedProcessNamespace: containers see each other, are restarted individually, and survive the agent; when process 1 exits, all are
// restarted.
func TestASharedProcessNamespace(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("share", fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: share}
spec:
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 5
  containers:
  - name: sleeper
    image: %[1]s
    command: [sh, -c, 'sleep 98761 & exec sleep 98760']
  - name: looker
    image: %[1]s
    command: [sh, -c, 'while :; do ps -o pid,args > /tmp/ps; grep -q "sleep 98760" /tmp/ps && grep -q "^ *1 /pause" /tmp/ps && { echo seen; exec sleep 98762; }; sleep 0.1; done']
`, image))
	ids := func(p corev1.Pod) (sleeper, looker string) {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == "sleeper" {
				sleeper = c.ContainerID
			} else {
				looker = c.ContainerID
			}
		}
		return sleeper, looker
	}
	in.ready("share")
	in.eventually("the containers see each other", func() error {
		out, err := in.run("logs", "-c", "looker", "share")
		if err == nil && !strings.Contains(out, "seen") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	sleeper, looker := ids(in.ready("share"))

	// The exit of one container does not affect the other, and none of its processes remain.
	left := in.processWith("sleep 98761")
	if err := syscall.Kill(in.processWith("sleep 98760").pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p := in.pod("share", "has restarted one container", func(p corev1.Pod) bool { s, _ := ids(p); return isReady(p) && s != sleeper })
	if _, l := ids(p); l != looker {
		t.Errorf("the other container was %s and is %s", looker, l)
	}
	if now, ok := in.table()[left.pid]; ok && now.cmdline == left.cmdline {
		t.Errorf("process %d of the container that ended runs on: %s", now.pid, now.cmdline)
	}

	sleeper, looker = ids(p)
	in.kill9()
	in.start()
	if s, l := ids(in.ready("share")); s != sleeper || l != looker {
		t.Errorf("the containers were %s and %s, and are %s and %s after a restart of the agent", sleeper, looker, s, l)
	}

	pause := in.pauseOf(t)
	if err := syscall.Kill(pause, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	in.pod("share", "has come back", func(p corev1.Pod) bool { s, l := ids(p); return isReady(p) && s != sleeper && l != looker })
	if now := in.pauseOf(t); now == pause {
		t.Errorf("process 1 is still %d", now)
	}
	in.drop("share")
	in.gone("share")
}

// pauseOf returns process 1 of the instance's only pod.
func (in *instance) pauseOf(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(in.state, "pause", "*", "pid"))
	if err != nil || len(files) != 1 {
		t.Fatalf("processes 1: %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}
