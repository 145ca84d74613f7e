package runtimetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/runner"
)

// outputLimit is what the tests of Exec keep.
const outputLimit = 1000

// exec runs a script in a container.
func (p *pod) exec(ctx context.Context, c runner.Container, timeout time.Duration, script string) (runner.ExecResult, error) {
	return p.rt.Exec(ctx, p.Key(), runner.ExecRequest{
		ContainerID: c.ID, Command: []string{"sh", "-c", script}, Timeout: timeout, Limit: outputLimit,
	})
}

// serving is a pod with one container that runs.
func (s *suite) serving() (*pod, runner.Container) {
	s.t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.sandbox()
	return p, p.run("c0")
}

// wantExec checks the result of a script that must have run to its end. The two outputs may come in any order.
func (p *pod) wantExec(c runner.Container, script string, code int, lines ...string) {
	p.t.Helper()
	r, err := p.exec(p.t.Context(), c, patience, script)
	if err != nil {
		p.t.Errorf("%s: %v", script, err)
		return
	}
	got := strings.Fields(string(r.Output))
	slices.Sort(got)
	slices.Sort(lines)
	if r.ExitCode != code || !slices.Equal(got, lines) {
		p.t.Errorf("%s: exit code %d, output %q; want %d, %q", script, r.ExitCode, r.Output, code, lines)
	}
}

func testExec(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	p.wantExec(c, ExecSucceed, 0, "out", "err")
	p.wantExec(c, ExecFail, 3, "no")
	if now := p.instance(c.ID); now.State != runner.ContainerRunning || now.PID != c.PID {
		t.Errorf("the container is %s with pid %d, was Running with %d", now.State, now.PID, c.PID)
	}
}

func testExecLimit(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	r, err := p.exec(t.Context(), c, patience, ExecFlood)
	if err != nil || r.ExitCode != 0 || string(r.Output) != strings.Repeat("x", outputLimit) {
		t.Errorf("exit code %d, %d bytes, %v; want 0, the first %d bytes", r.ExitCode, len(r.Output), err, outputLimit)
	}
}

func testExecTimeout(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	began := time.Now()
	r, err := p.exec(t.Context(), c, time.Second, ExecHang)
	if !errors.Is(err, runner.ErrExecTimeout) {
		t.Errorf("error %v, want a timeout", err)
	}
	if took := time.Since(began); took < time.Second || took > patience {
		t.Errorf("it took %s", took)
	}
	if string(r.Output) != "begun\n" {
		t.Errorf("output %q", r.Output)
	}
	p.wantExec(c, ExecSucceed, 0, "out", "err")
}

func testExecCancel(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := p.exec(ctx, c, 0, ExecHang); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
	if _, err := p.exec(ctx, c, 0, ExecSucceed); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command whose context had ended before: %v", err)
	}
	p.wantExec(c, ExecSucceed, 0, "out", "err")
}

func testExecLeaves(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	began := time.Now()
	p.wantExec(c, ExecLeave, 0, "left")
	if took := time.Since(began); took > 2900*time.Millisecond {
		t.Errorf("it took %s: the process in the background was waited for", took)
	}
}

func testExecErrors(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	for what, r := range map[string]runner.ExecRequest{
		"a program that is not there":      {ContainerID: c.ID, Command: []string{MissingCommand}},
		"a container that is not there":    {ContainerID: "missing", Command: []string{"true"}},
		"a request that says no container": {Command: []string{"true"}},
	} {
		if result, err := p.rt.Exec(t.Context(), p.Key(), r); err == nil {
			t.Errorf("%s: exit code %d and no error", what, result.ExitCode)
		}
	}
	p.apply(onInstance(runner.KillContainer, c))
	c = p.exited(c.ID)
	for _, when := range []string{"exited", "finished"} {
		if _, err := p.exec(t.Context(), c, patience, ExecSucceed); err == nil {
			t.Errorf("a command was run in a container that has %s", when)
		}
		p.apply(onInstance(runner.FinishContainer, c))
	}
}

func testExecParallel(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	other := p.create(runner.Action{Container: "c0"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { p.wantExec(c, ExecSucceed, 0, "out", "err") })
	}
	p.apply(onInstance(runner.RemoveContainer, other))
	p.observe()
	wg.Wait()
	hang := make(chan error, 1)
	go func() {
		_, err := p.exec(t.Context(), c, patience, ExecHang)
		hang <- err
	}()
	p.apply(onInstance(runner.KillContainer, c))
	p.exited(c.ID)
	p.apply(onInstance(runner.RemoveContainer, c))
	select {
	case err := <-hang:
		if errors.Is(err, runner.ErrExecTimeout) {
			t.Error("the end of the container did not end the command")
		}
	case <-time.After(patience):
		t.Error("the command outlives its container")
	}
}

func testExecAfterRestart(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	p.wantExec(c, ExecFail, 3, "no")
	s.restart(nil)
	p.wantExec(c, ExecFail, 3, "no")
}

func testHealth(t *testing.T, s *suite) {
	t.Helper()
	p, c := s.serving()
	if c.Health != (runner.Health{}) {
		t.Errorf("before anything was recorded: %+v", c.Health)
	}
	at := time.Date(2026, 7, 1, 12, 0, 0, 1, time.UTC)
	for _, want := range []runner.Health{{Started: true, Since: at}, {Started: true, Ready: true, Since: at.Add(time.Minute)}, {Since: at.Add(time.Hour)}} {
		a := onInstance(runner.RecordHealth, c)
		a.Health = want
		p.apply(a)
		s.restart(nil)
		got := p.instance(c.ID).Health
		if got != want {
			t.Errorf("recorded %+v, got %+v", want, got)
		}
	}
}
