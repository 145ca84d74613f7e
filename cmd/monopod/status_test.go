package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"monopod/node/localapi"
)

func TestStatusTellsWhatTheAgentCosts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	r := d.cmd("status", "-o", "json")
	var a localapi.Agent
	if err := json.Unmarshal([]byte(r.stdout), &a); err != nil || a.PID != os.Getpid() || a.Agent.Processes != 1 || a.Agent.ResidentBytes == 0 || a.Agent.WakeUps == 0 || a.Shims.Processes != 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if r := d.cmd("status"); r.code != 0 || !strings.Contains(r.stdout, "monopod") || !strings.Contains(r.stdout, "WRITTEN/H") {
		t.Errorf("%+v", r)
	}
}
