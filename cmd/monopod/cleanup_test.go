package main

import (
	"os"
	"strings"
	"testing"

	"monopod/runner/runtimetest"
)

func TestCleanupNeedsAStoppedDaemonWithoutPods(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("Running", "get", "pods")
	cleanup := func() result {
		p := d.program()
		p.machine.open = d.prog.machine.open
		errs := &syncBuffer{}
		p.stderr = errs
		code := p.run(t.Context(), []string{"cleanup", "--config", d.path("config.yaml")})
		return result{stderr: errs.String(), code: code}
	}
	if r := cleanup(); r.code != exitError || !strings.Contains(r.stderr, "another monopod (pid") {
		t.Errorf("with a daemon: code %d: %s", r.code, r.stderr)
	}
	d.end()
	if r := cleanup(); r.code != exitError || !strings.Contains(r.stderr, "pods are still there") {
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
	if r := cleanup(); r.code != exitOK {
		t.Errorf("code %d: %s", r.code, r.stderr)
	}
}
