package change

import (
	"os"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

func TestDrainStopsPodsByPriorityAndLasts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	d.Put("low.yaml", clitest.PodOfPriority("low", runtimetest.ScriptServe, 1))
	d.Put("mid.yaml", clitest.PodOfPriority("mid", runtimetest.ScriptServe, 5))
	d.Put("high.yaml", clitest.PodOfPriority("high", runtimetest.ScriptServe, 100))
	for _, name := range []string{"low", "mid", "high"} {
		d.Phase(name, "Running")
	}
	d.Fake.Journal()
	if r := d.Cmd("drain", "--priority-below", "100", "--ignore", "x", "--ignore", "y*"); r.Code != 0 || r.Stdout != "pod default/low has stopped\npod default/mid has stopped\ndrained; `monopod undrain` lets pods run again\n" {
		t.Errorf("%+v", r)
	}
	var stopped []string
	for _, e := range d.Fake.Journal() {
		if e.Action.Kind == runner.StopContainer {
			stopped = append(stopped, e.Key.Name)
		}
	}
	if strings.Join(stopped, " ") != "low mid" {
		t.Errorf("stopped %v", stopped)
	}
	d.Put("new.yaml", clitest.PodOfPriority("new", runtimetest.ScriptServe, 1))
	d.Put("vip.yaml", clitest.PodOfPriority("vip", runtimetest.ScriptServe, 100))
	for name, want := range map[string]string{"low": "Drained", "mid": "Drained", "high": "Running", "new": "Drained", "vip": "NodeUnschedulable"} {
		d.Phase(name, want)
	}
	if r := d.Cmd("get", "pods"); !strings.Contains(r.Stderr, "This machine is drained since ") {
		t.Errorf("get: %q", r.Stderr)
	}
	if r := d.Cmd("why", "low"); !strings.Contains(r.Stdout, "this machine is drained") || !strings.Contains(r.Stdout, "monopod undrain") {
		t.Errorf("why: %s", r.Stdout)
	}
	d.End()
	d.Start()
	for name, want := range map[string]string{"low": "Drained", "high": "Running", "new": "Drained", "vip": "NodeUnschedulable"} {
		d.Phase(name, want)
	}
	if r := d.Cmd("uncordon"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"low", "mid", "high", "new", "vip"} {
		d.Phase(name, "Running")
	}
	if _, err := os.Stat(d.Path("root", "drain.json")); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	if r := d.Cmd("get", "pods"); r.Stderr != "" {
		t.Errorf("get: %q", r.Stderr)
	}
}

func TestCordonKeepsOnlyNewPodsOut(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	d.Put("old.yaml", clitest.PodOfPriority("old", runtimetest.ScriptServe, 1))
	d.Phase("old", "Running")
	if r := d.Cmd("cordon", "--until-boot"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	d.Put("new.yaml", clitest.PodOfPriority("new", runtimetest.ScriptServe, 1))
	d.Phase("new", "NodeUnschedulable")
	d.Phase("old", "Running")
	if r := d.Cmd("get", "pods"); !strings.Contains(r.Stderr, "This machine is cordoned") {
		t.Errorf("get: %q", r.Stderr)
	}
	if r := d.Cmd("undrain"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	d.Phase("new", "Running")
}

func TestDrainSaysWhatHasNotStoppedInTime(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptStubborn, 1))
	d.Phase("web", "Running")
	if r := d.Cmd("drain", "--timeout", "50ms"); r.Code != program.ExitTimeout || !strings.Contains(r.Stderr, "not all pods have stopped within 50ms: default/web") {
		t.Errorf("%+v", r)
	}
	if r := d.Cmd("why", "web"); !strings.Contains(r.Stdout, "it is being stopped because this machine is drained") {
		t.Errorf("why: %s", r.Stdout)
	}
	if r := d.Cmd("drain", "--ignore", "["); r.Code != program.ExitError || !strings.Contains(r.Stderr, "is not a pattern") {
		t.Errorf("%+v", r)
	}
}

// TestATimeoutOfDrainCountsForTheRequestToo: `drain --timeout 3s` hung for minutes.
func TestATimeoutOfDrainCountsForTheRequestToo(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	p := d.Program()
	p.Env.Environ = []string{"MONOPOD_SOCKET=" + clitest.SilentDaemon(t)}
	errs := &daemontest.SyncBuffer{}
	p.Stderr = errs
	if code := commands(t.Context(), p, []string{"drain", "--timeout", "10ms"}); code != program.ExitTimeout || !strings.Contains(errs.String(), "did not answer within 500ms") {
		t.Errorf("code %d: %s", code, errs)
	}
}
