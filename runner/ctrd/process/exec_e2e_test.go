//go:build e2e

package process_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/trees"
	"monopod/runner/runtimetest"
)

// execIn runs a script in the pod's only container.
func execIn(t testing.TB, a *ctrdtest.Agent, key manifests.Key, timeout time.Duration, script string) (runner.ExecResult, error) {
	t.Helper()
	return a.Processes.Exec(t.Context(), key, runner.ExecRequest{
		ContainerID: a.State(t, key).Containers[0].ID, Command: []string{"sh", "-c", script}, Timeout: timeout, Limit: 10 << 10,
	})
}

// TestACommandIsLikeTheContainersOwnProcess checks user, environment, directory and capabilities.
func TestACommandIsLikeTheContainersOwnProcess(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	p := ctrdtest.Load(t, `
apiVersion: v1
kind: Pod
metadata: {name: exec}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: `+ctrdtest.TestImage+`
    command: [sh, -c, "exec sleep 1000"]
    workingDir: /tmp
    env: [{name: WORD, value: "a b"}]
    securityContext: {runAsUser: 1234, runAsGroup: 4321, capabilities: {drop: [ALL]}}
`)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, p))
	script := `echo "$(id -u) $(id -g) $PWD $WORD"; grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/$1/status; cat /proc/$1/cgroup`
	of := func(pid string) string {
		r, err := execIn(t, a, p.Key(), 20*time.Second, "set -- "+pid+"; "+script)
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
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, p.Key()))
}

// TestCommandsLeaveNothing compares resources before and after commands of all kinds.
func TestCommandsLeaveNothing(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	p := ctrdtest.Stamped(t, "exec", w.Dir, false)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, p))
	scripts := func(timeout time.Duration, all ...string) {
		for _, script := range all {
			if _, err := execIn(t, a, p.Key(), timeout, script); err != nil && !errors.Is(err, runner.ErrExecTimeout) {
				t.Errorf("%s: %v", script, err)
			}
		}
	}
	// Children of a killed command become children of the container's process, which does not reap.
	processes := func() int {
		r, err := execIn(t, a, p.Key(), 20*time.Second, `grep -ls "^State:.[^Z]" /proc/[0-9]*/status; echo /proc/1/fd/*`)
		ctrdtest.Check(t, err)
		return len(strings.Fields(string(r.Output)))
	}
	scripts(20*time.Second, runtimetest.ExecSucceed)
	before, alone := a.Census(t), processes()
	for range 3 {
		scripts(20*time.Second, runtimetest.ExecSucceed, runtimetest.ExecFail, runtimetest.ExecFlood)
		scripts(300*time.Millisecond, runtimetest.ExecHang)
		_, err := a.Processes.Exec(t.Context(), p.Key(), runner.ExecRequest{ContainerID: a.State(t, p.Key()).Containers[0].ID, Command: []string{runtimetest.MissingCommand}})
		if err == nil {
			t.Error("a missing command is no error")
		}
	}
	if left := trees.Names(a.Dirs.Path("exec")); len(left) > 0 {
		t.Errorf("FIFOs are left: %q", left)
	}
	ctrdtest.Within(t, 10*time.Second, "the container has no more processes and files than before", func() bool { return processes() == alone })
	a.SameCensus(t, before)
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, p.Key()))
}

// TestACommandOfAnEarlierAgentEnds has a command whose client is gone.
func TestACommandOfAnEarlierAgentEnds(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer func() { a.End(t) }()
	p := ctrdtest.Stamped(t, "exec", w.Dir, false)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, p))
	rec := a.Index.OfPod(p.Key())[0]
	c, err := a.Processes.StartCommand(a.NS(t.Context()), rec, []string{"sh", "-c", runtimetest.ExecHang})
	ctrdtest.Check(t, err)
	if !ctrdtest.Alive(uint32(c.Pid)) {
		t.Fatal("the command does not run")
	}
	ctrdtest.Check(t, c.Out.Close()) // as the end of the agent does
	a.Stop(t)
	a = w.Open(t)
	ctrdtest.Within(t, 10*time.Second, "the command has ended", func() bool { return !ctrdtest.Alive(uint32(c.Pid)) })
	ctrdtest.Within(t, 10*time.Second, "its FIFO is gone", func() bool {
		_, err := os.Stat(c.Fifo)
		return os.IsNotExist(err)
	})
	if r, err := execIn(t, a, p.Key(), 20*time.Second, runtimetest.ExecFail); err != nil || r.ExitCode != 3 {
		t.Errorf("the next command: %d, %v", r.ExitCode, err)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(context.WithoutCancel(t.Context()), a, p.Key()))
}
