package run

import (
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/runner/runtimetest"
)

func TestTheServiceManagerHearsHowTheAgentIs(t *testing.T) {
	t.Parallel()
	n, told := daemontest.ServiceManager(t, 0)
	d := newDaemon(t)
	d.Prog.Manager = n
	n.Watchdog = 200 * time.Millisecond // of which an answer may take a quarter
	d.Put("web.yaml", clitest.PodOfPriority("web", runtimetest.ScriptServe, 1))
	d.Start()
	told.Wait(t, "READY=1")
	told.Wait(t, "WATCHDOG=1")
	told.Wait(t, "STATUS=1 pods: 1 running, 0 completed, 0 not")
	if r := d.Cmd("drain"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	told.Wait(t, "STATUS=1 pods: 0 running, 0 completed, 1 not; drained")
	d.End()
	if m := told.Wait(t, "STOPPING=1"); m != "STOPPING=1\nSTATUS=stopping; the pods keep running" {
		t.Errorf("told %q", m)
	}
}
