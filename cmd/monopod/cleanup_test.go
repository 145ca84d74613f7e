package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/internal/run"
	"monopod/runner/runtimetest"
)

func TestCleanupNeedsAStoppedDaemonWithoutPods(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("Running", "get", "pods")
	failures := 0
	cleanup := func() result {
		p := d.program()
		p.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
			if failures > 0 {
				failures--
				return nil, errors.New("not yet")
			}
			return d.prog.Machine.Open(ctx, cfg, deps)
		}
		errs := &daemontest.SyncBuffer{}
		p.Stderr = errs
		code := NewCommands(p).run(t.Context(), []string{"cleanup", "--config", d.path("config.yaml")})
		return result{stderr: errs.String(), code: code}
	}
	if r := cleanup(); r.code != program.ExitError || !strings.Contains(r.stderr, "another monopod (pid") {
		t.Errorf("with a daemon: code %d: %s", r.code, r.stderr)
	}
	d.end()
	if r := cleanup(); r.code != program.ExitError || !strings.Contains(r.stderr, "pods are still there") {
		t.Errorf("with a pod: code %d: %s", r.code, r.stderr)
	}
	if err := os.Remove(d.path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.eventually("the pod is gone", func() error {
		if r := d.cmd("get", "pods", "-o", "name"); r.stdout != "" {
			return os.ErrExist
		}
		return nil
	})
	d.end()
	failures = run.MaxOpenFailures
	if r := cleanup(); r.code != program.ExitError || !strings.Contains(r.stderr, "not yet") || failures != 0 {
		t.Errorf("without a runtime: code %d: %s", r.code, r.stderr)
	}
	failures = run.MaxOpenFailures - 1
	if r := cleanup(); r.code != program.ExitOK || failures != 0 {
		t.Errorf("code %d: %s", r.code, r.stderr)
	}
}
