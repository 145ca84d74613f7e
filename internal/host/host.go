// Package host gives access to the machine on which monopod is installed: systemd and logind, cgroups, and the program itself.
//
// It must not decide anything about pods. It has no goroutines.
package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"monopod/internal/bundle"
	"monopod/internal/config"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node/budget"
	"monopod/node/shutdown"
	"monopod/node/systemd"
	"monopod/node/why"
)

// Host is the machine on which monopod is installed; tests replace it.
type Host struct {
	// Units is the directory with the unit files of the administrator. Booted is a path that exists while systemd runs.
	Units, Booted string
	// Logind lists the directories for drop-ins of logind, the persistent one first.
	Logind []string
	// Systemctl runs systemctl with the arguments.
	Systemctl func(ctx context.Context, args ...string) error
	// Cgroups is the cgroup file system.
	Cgroups budget.System
	// Connect connects to logind.
	Connect func(context.Context) (shutdown.Logind, error)
	// Self returns the path of the running program, and whether it works without other files beside it.
	Self func() (path string, whole bool, err error)
	// Unpacked returns the program that monopod-bundle unpacked; empty if this program was not unpacked.
	Unpacked func() string
}

// This returns the machine of this process.
func This() Host {
	return Host{
		Units: "/etc/systemd/system", Booted: "/run/systemd/system",
		Logind:    []string{"/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d"},
		Systemctl: systemctl, Connect: connectLogind, Cgroups: budget.ThisProcess(),
		Self: func() (string, bool, error) {
			if file := bundle.Launcher(); file != "" {
				return file, true, nil
			}
			exe, err := os.Executable()
			return exe, false, err
		},
		Unpacked: func() string {
			exe, err := os.Executable()
			if err != nil || bundle.Launcher() == "" {
				return ""
			}
			return exe
		},
	}
}

// InstanceOf returns the instance of a configuration; the zero value if the service starts it.
func (h *Host) InstanceOf(cfg *config.Loaded) why.Instance {
	unit, err := os.ReadFile(h.Unit())
	switch {
	case err == nil && systemd.IsOurs(string(unit)) && OwnUnit(cfg, string(unit)):
		return why.Instance{}
	case len(cfg.Files) == 0 || cfg.Files[0] == config.DefaultFile:
		return why.Instance{} // that may be a service of a package, which is written elsewhere
	}
	return why.Instance{Config: cfg.Files[0], Socket: cfg.Socket}
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, printer.OneLine(strings.TrimSpace(string(out))))
	}
	return nil
}

// Unit returns the path of the unit file of the service.
func (h *Host) Unit() string { return filepath.Join(h.Units, systemd.UnitName) }

// HasSystemd reports whether systemd is process 1.
func (h *Host) HasSystemd() bool {
	_, err := os.Stat(h.Booted)
	return err == nil
}

// connectLogind connects to logind through D-Bus.
func connectLogind(ctx context.Context) (shutdown.Logind, error) {
	l, err := systemd.ConnectLogind(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// OwnUnit reports whether a unit starts the instance of this configuration, and not one with another file.
func OwnUnit(cfg *config.Loaded, unit string) bool {
	file := config.DefaultFile
	if len(cfg.Files) > 0 {
		file = cfg.Files[0]
	}
	if at, err := filepath.Abs(file); err == nil {
		file = at
	}
	program := systemd.Program(unit)
	return systemd.Starts(unit, program, "--config", file) || file == config.DefaultFile && systemd.Starts(unit, program)
}

// Platform returns the platform of this machine.
func Platform() manifests.Platform { return manifests.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH} }
