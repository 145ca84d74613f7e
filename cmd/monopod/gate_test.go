package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"monopod/internal/program"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// podText is the manifest of a pod of a priority whose container runs a script of the fake.
func podText(name, script string, priority int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  priority: %d\n  containers: [{name: a, image: busybox, command: [%s]}]\n", name, priority, script)
}

func (d *testDaemon) phase(name, want string) {
	d.t.Helper()
	d.eventually(name+" is "+want, func() error {
		r := d.cmd("get", "pods")
		for line := range strings.Lines(r.stdout) {
			if f := strings.Fields(line); len(f) > 3 && f[1] == name {
				if f[3] == want {
					return nil
				}
				return fmt.Errorf("%s", line)
			}
		}
		return fmt.Errorf("%s%s", r.stdout, r.stderr)
	})
}

func TestDrainStopsPodsByPriorityAndLasts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	d.put("low.yaml", podText("low", runtimetest.ScriptServe, 1))
	d.put("mid.yaml", podText("mid", runtimetest.ScriptServe, 5))
	d.put("high.yaml", podText("high", runtimetest.ScriptServe, 100))
	for _, name := range []string{"low", "mid", "high"} {
		d.phase(name, "Running")
	}
	d.fake.Journal()
	if r := d.cmd("drain", "--priority-below", "100", "--ignore", "x", "--ignore", "y*"); r.code != 0 || r.stdout != "pod default/low has stopped\npod default/mid has stopped\ndrained; `monopod undrain` lets pods run again\n" {
		t.Errorf("%+v", r)
	}
	var stopped []string
	for _, e := range d.fake.Journal() {
		if e.Action.Kind == runner.StopContainer {
			stopped = append(stopped, e.Key.Name)
		}
	}
	if strings.Join(stopped, " ") != "low mid" {
		t.Errorf("stopped %v", stopped)
	}
	d.put("new.yaml", podText("new", runtimetest.ScriptServe, 1))
	d.put("vip.yaml", podText("vip", runtimetest.ScriptServe, 100))
	for name, want := range map[string]string{"low": "Drained", "mid": "Drained", "high": "Running", "new": "Drained", "vip": "NodeUnschedulable"} {
		d.phase(name, want)
	}
	if r := d.cmd("get", "pods"); !strings.Contains(r.stderr, "This machine is drained since ") {
		t.Errorf("get: %q", r.stderr)
	}
	if r := d.cmd("why", "low"); !strings.Contains(r.stdout, "somebody has drained this machine") || !strings.Contains(r.stdout, "monopod undrain") {
		t.Errorf("why: %s", r.stdout)
	}
	d.end()
	d.start()
	for name, want := range map[string]string{"low": "Drained", "high": "Running", "new": "Drained", "vip": "NodeUnschedulable"} {
		d.phase(name, want)
	}
	if r := d.cmd("uncordon"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"low", "mid", "high", "new", "vip"} {
		d.phase(name, "Running")
	}
	if _, err := os.Stat(d.path("root", "drain.json")); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	if r := d.cmd("get", "pods"); r.stderr != "" {
		t.Errorf("get: %q", r.stderr)
	}
}

func TestCordonKeepsOnlyNewPodsOut(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	d.put("old.yaml", podText("old", runtimetest.ScriptServe, 1))
	d.phase("old", "Running")
	if r := d.cmd("cordon", "--until-boot"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	d.put("new.yaml", podText("new", runtimetest.ScriptServe, 1))
	d.phase("new", "NodeUnschedulable")
	d.phase("old", "Running")
	if r := d.cmd("get", "pods"); !strings.Contains(r.stderr, "This machine is cordoned") {
		t.Errorf("get: %q", r.stderr)
	}
	if r := d.cmd("undrain"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	d.phase("new", "Running")
}

func TestDrainSaysWhatHasNotStoppedInTime(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	d.put("web.yaml", podText("web", runtimetest.ScriptStubborn, 1))
	d.phase("web", "Running")
	if r := d.cmd("drain", "--timeout", "50ms"); r.code != program.ExitTimeout || !strings.Contains(r.stderr, "not all pods have stopped within 50ms: default/web") {
		t.Errorf("%+v", r)
	}
	if r := d.cmd("why", "web"); !strings.Contains(r.stdout, "it is being stopped, because somebody has drained this machine") {
		t.Errorf("why: %s", r.stdout)
	}
	if r := d.cmd("drain", "--ignore", "["); r.code != program.ExitError || !strings.Contains(r.stderr, "is not a pattern") {
		t.Errorf("%+v", r)
	}
}
