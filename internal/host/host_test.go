package host_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/host"
	"monopod/internal/testfiles"
	"monopod/node/budget"
	"monopod/node/systemd"
	"monopod/node/why"
)

// configured is a configuration that was read from these files.
func configured(files ...string) *config.Loaded {
	cfg := &config.Loaded{Files: files}
	cfg.Socket = "/run/own.sock"
	return cfg
}

func TestWhichUnitStartsAnInstance(t *testing.T) {
	for _, tt := range []struct {
		what string
		unit string
		cfg  *config.Loaded
		want bool
	}{
		{"no file", systemd.Unit("/bin/monopod"), configured(), true},
		{"the default file", systemd.Unit("/bin/monopod"), configured(config.DefaultFile), true},
		{"the default file, and a drop-in", systemd.Unit("/bin/monopod"), configured(config.DefaultFile, "/etc/monopod/config.d/a.yaml"), true},
		{"the default file by its name", systemd.Unit("/bin/monopod", "--config", config.DefaultFile), configured(), true},
		{"its own file", systemd.Unit("/opt/my monopod", "--config", "/etc/other.yaml"), configured("/etc/other.yaml"), true},
		{"another file", systemd.Unit("/bin/monopod", "--config", "/etc/other.yaml"), configured(), false},
		{"its own file, which the unit does not name", systemd.Unit("/bin/monopod"), configured("/etc/other.yaml"), false},
		{"further arguments", systemd.Unit("/bin/monopod", "--config", "/etc/other.yaml", "--max-pods=3"), configured("/etc/other.yaml"), false},
		{"a unit that starts nothing", "[Unit]\n", configured(), false},
	} {
		if got := host.OwnUnit(tt.cfg, tt.unit); got != tt.want {
			t.Errorf("%s: %v", tt.what, got)
		}
	}
}

// Answers of `why` name commands: those of the service need neither --config nor --socket.
func TestTheInstanceOfAConfiguration(t *testing.T) {
	const file = "/etc/other.yaml"
	other := why.Instance{Config: file, Socket: "/run/own.sock"}
	for _, tt := range []struct {
		what, unit string
		cfg        *config.Loaded
		want       why.Instance
	}{
		{"no unit, no file", "", configured(), why.Instance{}},
		{"no unit, the default file", "", configured(config.DefaultFile), why.Instance{}},
		{"no unit, another file", "", configured(file), other},
		{"our unit with that file", systemd.Unit("/bin/monopod", "--config", file), configured(file), why.Instance{}},
		{"our unit without it", systemd.Unit("/bin/monopod"), configured(file), other},
		{"somebody else's unit with that file", "# mine\n" + systemd.Unit("/bin/monopod", "--config", file), configured(file), other},
	} {
		h := &host.Host{Units: t.TempDir()}
		if tt.unit != "" {
			testfiles.Write(t, h.Unit(), tt.unit)
		}
		if got := h.InstanceOf(tt.cfg); got != tt.want {
			t.Errorf("%s: %+v", tt.what, got)
		}
	}
}

func TestSystemdIsFoundByItsDirectory(t *testing.T) {
	h := &host.Host{Booted: t.TempDir(), Units: "/etc/systemd/system"}
	if !h.HasSystemd() || h.Unit() != "/etc/systemd/system/monopod.service" {
		t.Errorf("%v %s", h.HasSystemd(), h.Unit())
	}
	h.Booted = filepath.Join(h.Booted, "none")
	if h.HasSystemd() {
		t.Error("there is no such directory")
	}
}

func TestOnlyTheCgroupsOfMonopodAreRemoved(t *testing.T) {
	for _, tt := range []struct{ own, want string }{{"", "other"}, {"/other", "monopod-agent"}} {
		dir := t.TempDir()
		mounts := "30 20 0:25 / " + dir + "/cg rw - cgroup2 cgroup2 rw\n"
		testfiles.Write(t, filepath.Join(dir, "proc/self/mountinfo"), mounts)
		testfiles.Write(t, filepath.Join(dir, "proc/self/cgroup"), "0::/\n")
		for _, name := range []string{"monopod-agent", "monopod-shims", "other"} {
			if err := os.MkdirAll(filepath.Join(dir, "cg", name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cfg := &config.Config{CgroupRoot: "/monopod", KubeletCgroups: tt.own}
		for range 2 { // it does not matter that they are gone
			if err := host.LeaveBudget(budget.System{Proc: filepath.Join(dir, "proc")}, cfg); err != nil {
				t.Error(err)
			}
		}
		left, err := filepath.Glob(filepath.Join(dir, "cg", "*"))
		if err != nil || len(left) != 1 || filepath.Base(left[0]) != tt.want {
			t.Errorf("kubeletCgroups %q: %v is left, %v", tt.own, left, err)
		}
	}
	if err := host.LeaveBudget(budget.System{Proc: t.TempDir()}, &config.Config{}); err != nil {
		t.Errorf("a machine without cgroups: %v", err)
	}
}

// The test program was neither unpacked nor is it whole.
func TestThisProgram(t *testing.T) {
	h := host.This()
	path, whole, err := h.Self()
	if err != nil || whole || !strings.HasSuffix(path, ".test") || h.Unpacked() != "" {
		t.Errorf("%s, whole %v, unpacked %q, %v", path, whole, h.Unpacked(), err)
	}
	if p := host.Platform(); p.OS != "linux" || p.Arch != runtime.GOARCH {
		t.Errorf("%+v", p)
	}
}
