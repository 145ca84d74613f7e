//go:build e2e

package ctrd

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/trees"
	"monopod/runner/runtimetest"
)

// execIn runs a script in the pod's only container.
func (a *agent) execIn(t testing.TB, key manifests.Key, timeout time.Duration, script string) (runner.ExecResult, error) {
	t.Helper()
	return a.processes.Exec(t.Context(), key, runner.ExecRequest{
		ContainerID: a.state(t, key).Containers[0].ID, Command: []string{"sh", "-c", script}, Timeout: timeout, Limit: 10 << 10,
	})
}

// TestACommandIsLikeTheContainersOwnProcess checks user, environment, directory and capabilities.
func TestACommandIsLikeTheContainersOwnProcess(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	p := load(t, `
apiVersion: v1
kind: Pod
metadata: {name: exec}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: `+testImage+`
    command: [sh, -c, "exec sleep 1000"]
    workingDir: /tmp
    env: [{name: WORD, value: "a b"}]
    securityContext: {runAsUser: 1234, runAsGroup: 4321, capabilities: {drop: [ALL]}}
`)
	check(t, startPod(t.Context(), a, p))
	script := `echo "$(id -u) $(id -g) $PWD $WORD"; grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/$1/status; cat /proc/$1/cgroup`
	of := func(pid string) string {
		r, err := a.execIn(t, p.Key(), 20*time.Second, "set -- "+pid+"; "+script)
		if err != nil || r.ExitCode != 0 {
			t.Fatalf("exit code %d, %v: %s", r.ExitCode, err, r.Output)
		}
		return string(r.Output)
	}
	own, its := of("1"), of("self")
	if !strings.HasPrefix(its, "1234 4321 /tmp a b\n") {
		t.Errorf("the command ran as %q", its)
	}
	if own != its {
		t.Errorf("the command has\n%s\nthe container's process has\n%s", its, own)
	}
	check(t, removePod(t.Context(), a, p.Key()))
}

// TestCommandsLeaveNothing compares resources before and after commands of all kinds.
func TestCommandsLeaveNothing(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	p := stamped(t, "exec", w.dir, false)
	check(t, startPod(t.Context(), a, p))
	scripts := func(timeout time.Duration, all ...string) {
		for _, script := range all {
			if _, err := a.execIn(t, p.Key(), timeout, script); err != nil && !errors.Is(err, runner.ErrExecTimeout) {
				t.Errorf("%s: %v", script, err)
			}
		}
	}
	// Children of a killed command become children of the container's process, which does not reap.
	processes := func() int {
		r, err := a.execIn(t, p.Key(), 20*time.Second, `grep -ls "^State:.[^Z]" /proc/[0-9]*/status; echo /proc/1/fd/*`)
		check(t, err)
		return len(strings.Fields(string(r.Output)))
	}
	scripts(20*time.Second, runtimetest.ExecSucceed)
	before, alone := a.census(t), processes()
	for range 3 {
		scripts(20*time.Second, runtimetest.ExecSucceed, runtimetest.ExecFail, runtimetest.ExecFlood)
		scripts(300*time.Millisecond, runtimetest.ExecHang)
		_, err := a.processes.Exec(t.Context(), p.Key(), runner.ExecRequest{ContainerID: a.state(t, p.Key()).Containers[0].ID, Command: []string{runtimetest.MissingCommand}})
		if err == nil {
			t.Error("a missing command is no error")
		}
	}
	if left := trees.Names(a.dirs.Path("exec")); len(left) > 0 {
		t.Errorf("FIFOs are left: %q", left)
	}
	within(t, 10*time.Second, "the container has no more processes and files than before", func() bool { return processes() == alone })
	a.sameCensus(t, before)
	check(t, removePod(t.Context(), a, p.Key()))
}

// TestACommandOfAnEarlierAgentEnds has a command whose client is gone.
func TestACommandOfAnEarlierAgentEnds(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer func() { a.end(t) }()
	p := stamped(t, "exec", w.dir, false)
	check(t, startPod(t.Context(), a, p))
	rec := a.index.OfPod(p.Key())[0]
	c, err := a.processes.StartCommand(a.ns(t.Context()), rec, []string{"sh", "-c", runtimetest.ExecHang})
	check(t, err)
	if !alive(uint32(c.Pid)) {
		t.Fatal("the command does not run")
	}
	check(t, c.Out.Close()) // as the end of the agent does
	a.stop(t)
	a = w.open(t)
	within(t, 10*time.Second, "the command has ended", func() bool { return !alive(uint32(c.Pid)) })
	within(t, 10*time.Second, "its FIFO is gone", func() bool {
		_, err := os.Stat(c.Fifo)
		return os.IsNotExist(err)
	})
	if r, err := a.execIn(t, p.Key(), 20*time.Second, runtimetest.ExecFail); err != nil || r.ExitCode != 3 {
		t.Errorf("the next command: %d, %v", r.ExitCode, err)
	}
	check(t, removePod(context.WithoutCancel(t.Context()), a, p.Key()))
}
