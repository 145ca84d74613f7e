package run

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/runner/runtimetest"
)

func TestCleanupNeedsAStoppedDaemonWithoutPods(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pods")
	failures := 0
	cleanup := func() clitest.Result {
		p := d.Program()
		p.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
			if failures > 0 {
				failures--
				return nil, errors.New("not yet")
			}
			return d.Prog.Machine.Open(ctx, cfg, deps)
		}
		errs := &daemontest.SyncBuffer{}
		p.Stderr = errs
		code := commands(t.Context(), p, []string{"cleanup", "--config", d.Path("config.yaml")})
		return clitest.Result{Stderr: errs.String(), Code: code}
	}
	if r := cleanup(); r.Code != program.ExitError || !strings.Contains(r.Stderr, "another monopod (pid") {
		t.Errorf("with a daemon: code %d: %s", r.Code, r.Stderr)
	}
	d.End()
	if r := cleanup(); r.Code != program.ExitError || !strings.Contains(r.Stderr, "pods still exist") {
		t.Errorf("with a pod: code %d: %s", r.Code, r.Stderr)
	}
	if err := os.Remove(d.Path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	d.Start()
	d.Eventually("the pod is gone", func() error {
		if r := d.Cmd("get", "pods", "-o", "name"); r.Stdout != "" {
			return os.ErrExist
		}
		return nil
	})
	d.End()
	failures = MaxOpenFailures
	if r := cleanup(); r.Code != program.ExitError || !strings.Contains(r.Stderr, "not yet") || failures != 0 {
		t.Errorf("without a runtime: code %d: %s", r.Code, r.Stderr)
	}
	failures = MaxOpenFailures - 1
	if r := cleanup(); r.Code != program.ExitOK || failures != 0 {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
}
