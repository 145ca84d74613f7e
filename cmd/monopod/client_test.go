package main

import (
	"net"
	"strings"
	"testing"

	"monopod/internal/program"
)

// TestUnknownWordsAreRefused: commands, flags and arguments that do not exist.
func TestUnknownWordsAreRefused(t *testing.T) {
	t.Parallel()
	newDaemon(t).Golden(t, "unknown", nil, [][]string{
		{"gte"},
		{"get", "pods", "--wat"},
		{"version", "x"},
	}...)
}

func TestWithoutADaemonClientsSayHowToStartIt(t *testing.T) {
	d := newDaemon(t)
	for _, args := range [][]string{{"get", "pods"}, {"get", "sources"}, {"describe", "pod", "x"}, {"logs", "x"}, {"get", "pods", "-w"}} {
		r := d.Cmd(args...)
		if r.Code != program.ExitError || !strings.Contains(r.Stderr, "is monopod running? Start it with `monopod run`") || !strings.Contains(r.Stderr, d.Path("run", "monopod.sock")) {
			t.Errorf("%v: code %d: %s", args, r.Code, r.Stderr)
		}
	}
	// A socket that a killed daemon has left behind.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Path("stale.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if r := d.Cmd("get", "pods", "--socket", d.Path("stale.sock")); r.Code != program.ExitError || !strings.Contains(r.Stderr, "no daemon answers on "+d.Path("stale.sock")) {
		t.Errorf("stale socket: code %d: %s", r.Code, r.Stderr)
	}
}

// Only the named command gets a flag for each key of the configuration.
func TestFlagsOfTheConfigurationAreThoseOfTheCommandThatIsNamed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, args := range [][]string{{"run", "--help-config"}, {"once", "--help-config"}, {"up", "--help-config"}, {"__complete", "down", "--node"}, {"config", "--node-name=x"}} {
		if r := d.Cmd(args...); r.Code != 0 || !strings.Contains(r.Stdout, "node-name") && !strings.Contains(r.Stdout, "nodeName: x") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := d.Cmd("get", "pods", "--node-name=x"); r.Code != program.ExitUsage {
		t.Errorf("%+v", r)
	}
}
