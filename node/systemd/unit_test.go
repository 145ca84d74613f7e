package systemd_test

import (
	"os"
	"strings"
	"testing"

	"monopod/node/systemd"
)

func TestTheUnitIsTheExample(t *testing.T) {
	b, err := os.ReadFile("../../examples/systemd/monopod.service")
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != systemd.Unit("/usr/local/bin/monopod") {
		t.Error("examples/systemd/monopod.service is another one: copy node/systemd/monopod.service")
	}
}

func TestTheUnitStartsAnyProgram(t *testing.T) {
	u := systemd.Unit("/opt/a b/50%", "--config", "/etc/x $y.yaml")
	if !strings.Contains(u, "\nExecStart=\"/opt/a b/50%%\" run --config \"/etc/x $$y.yaml\"\n") || strings.Contains(u, "/usr/local/bin") {
		t.Error(u)
	}
	for _, exe := range []string{"/opt/a b/50%", "/usr/bin/monopod", `/a"b\ $c`} {
		if got := systemd.Program(systemd.Unit(exe, "--config", "x y")); got != exe {
			t.Errorf("%s: %s", exe, got)
		}
	}
	if !systemd.IsOurs(u) || systemd.IsOurs("[Unit]\n") || systemd.IsOurs("") {
		t.Error("it does not know its own")
	}
}

func TestAUnitStartsWhatItSays(t *testing.T) {
	u := systemd.Unit("/opt/a b", "--config", "x $y")
	for _, tt := range []struct {
		program string
		args    []string
		want    bool
	}{
		{"/opt/a b", []string{"--config", "x $y"}, true},
		{"/opt/a b", nil, false},
		{"/opt/a", []string{"--config", "x $y"}, false},
		{"/opt/a b", []string{"--config", "x $y", "-v"}, false},
		{"/opt/a b", []string{"--config", "x"}, false},
	} {
		if got := systemd.Starts(u, tt.program, tt.args...); got != tt.want {
			t.Errorf("%s %q: %v", tt.program, tt.args, got)
		}
	}
	for text, want := range map[string]string{"[Service]\n": "", "ExecStart=\"/opt/x\n": "", "  ExecStart=/bin/x run\n": "/bin/x"} {
		if got := systemd.Program(text); got != want {
			t.Errorf("%q starts %q", text, got)
		}
	}
}
