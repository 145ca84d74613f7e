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
