package main

import (
	"context"
	"io"
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

// TestCommandsOfOtherProgramsAreExplained: flags of a command that does not exist are not the mistake, and of a short word no letter is left
// in a far-fetched suggestion.
func TestCommandsOfOtherProgramsAreExplained(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	const help = "\nsee `monopod --help`\n"
	for _, tt := range []struct{ line, want string }{
		{"ps", "unknown command \"ps\"; use `monopod get pods`" + help},
		{"ps -a", "unknown command \"ps\"; use `monopod get pods`" + help},
		{"frobnicate --all", `unknown command "frobnicate"` + help},
		{"frobnicate -x web", `unknown command "frobnicate"` + help},
		{"--all", "unknown flag: --all" + help},
		{"get --all-of-them", "unknown flag: --all-of-them\nsee `monopod get --help`\n"},
		{"delete web", "expected KIND NAME, for example `delete pod web`\nsee `monopod delete --help`\n"},
		{"delete deploy", "expected KIND NAME, for example `delete deploy web`\nsee `monopod delete --help`\n"},
		{"rollback deploy/x", "a Deployment is not a pod; write pod NAME, with a name of `monopod get pods`\nsee `monopod rollback --help`\n"},
	} {
		d.Says(program.ExitUsage, "", "monopod: "+tt.want, strings.Fields(tt.line)...)
	}
	root := newCommands().root()
	for _, other := range []string{"apply", "describe", "get", "delete", "top", "images"} { // which unknown commands are explained with
		if found, _, err := root.Find([]string{other}); err != nil || found == root {
			t.Errorf("%s is no command", other)
		}
	}
}

// TestAnInterruptedRequestIsSaidWithoutItsAddress: the daemon has the request, and does not answer.
func TestAnInterruptedRequestIsSaidWithoutItsAddress(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	l, err := net.Listen("unix", d.Path("silent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			interrupt()
		}
		_, _ = io.Copy(io.Discard, c)
	}()
	r := d.CmdContext(ctx, "get", "pods", "--socket", d.Path("silent.sock"))
	if r.Code != program.ExitError || r.Stderr != "monopod: interrupted\n" {
		t.Errorf("%+v", r)
	}
	_ = l.Close()
	<-done
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
