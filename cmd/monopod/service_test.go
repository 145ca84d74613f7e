package main

import (
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/runner/runtimetest"
)

func TestTheServiceManagerHearsHowTheAgentIs(t *testing.T) {
	t.Parallel()
	n, told := daemontest.ServiceManager(t, 0)
	d := newDaemon(t)
	d.prog.Manager = n
	n.Watchdog = 200 * time.Millisecond // of which an answer may take a quarter
	d.put("web.yaml", podText("web", runtimetest.ScriptServe, 1))
	d.start()
	told.Wait(t, "READY=1")
	told.Wait(t, "WATCHDOG=1")
	told.Wait(t, "STATUS=1 pods: 1 running, 0 completed, 0 not")
	if r := d.cmd("drain"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	told.Wait(t, "STATUS=1 pods: 0 running, 0 completed, 1 not; drained")
	d.end()
	if m := told.Wait(t, "STOPPING=1"); m != "STOPPING=1\nSTATUS=stopping; the pods go on" {
		t.Errorf("told %q", m)
	}
}
