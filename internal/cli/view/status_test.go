package view

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/node/localapi"
)

func TestStatusTellsWhatTheAgentCosts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	r := d.Cmd("status", "-o", "json")
	var a localapi.Agent
	if err := json.Unmarshal([]byte(r.Stdout), &a); err != nil || a.PID != os.Getpid() || a.Agent.Processes != 1 || a.Agent.ResidentBytes == 0 || a.Agent.WakeUps == 0 || a.Shims.Processes != 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if r := d.Cmd("status"); r.Code != 0 || !strings.Contains(r.Stdout, "monopod") || !strings.Contains(r.Stdout, "WRITTEN/H") {
		t.Errorf("%+v", r)
	}
}

func TestStatusTellsWhichNetworkIsUsedAndWhy(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	open := d.Prog.Machine.Open
	d.Prog.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
		deps.Networked("podman", "")
		return open(ctx, cfg, deps)
	}
	d.Start()
	want := "CNI network podman, because of cniConfDir " + d.Path("cni") + " (" + d.Path("config.yaml") + ":6)"
	d.Shows("\nThe pod network is "+want, "status")
	d.Shows(`"network": "`+want, "status", "-o", "json")
}
