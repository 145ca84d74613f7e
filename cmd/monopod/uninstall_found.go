package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/bundle"
	"monopod/internal/config"
	"monopod/node/systemd"
)

// found is what an instance has on this machine before it is uninstalled.
type found struct {
	// unit is the text of its unit; empty: it has none.
	unit string
	// other says that there is a unit of another instance, which stays with what belongs to it.
	other bool
	// ran says that a runtime may have been open with this configuration: only then one is opened to remove pods and the network.
	ran bool
	// stored says that there is a directory of it, or of its runs.
	stored bool
}

// nothing says that there is nothing to uninstall.
func (f found) nothing() bool { return f.unit == "" && !f.ran && !f.stored }

// find looks at the machine and changes nothing.
func (p *program) find(cfg *config.Loaded) (found, error) {
	f := found{
		ran:    exists(cfg.StateDirectory) || exists(filepath.Join(cfg.RootDirectory, "containerd")) || cfg.ContainerRuntimeEndpoint != "",
		stored: exists(cfg.RootDirectory) || exists(cfg.RootDirectory+runsSuffix),
	}
	b, err := os.ReadFile(p.host.unit())
	switch unit := string(b); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return f, err
	case !systemd.IsOurs(unit):
	case !ownUnit(cfg, unit):
		f.other = true
	case p.host.hasSystemd():
		f.unit = unit
	}
	return f, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ownUnit reports whether a unit starts the instance of this configuration, rather than one with another file.
func ownUnit(cfg *config.Loaded, unit string) bool {
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

// ownDirectories are those to be removed when they are empty: that for manifests and, of the instance without a file of its own, that of the default one.
func ownDirectories(cfg *config.Loaded) []string {
	dirs := []string{cfg.StaticPodPath}
	if len(cfg.Files) == 0 || cfg.Files[0] == config.DefaultFile {
		dirs = append(dirs, filepath.Dir(config.DefaultFile))
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
}

// stopService stops and disables a unit, unless there is none.
func (p *program) stopService(ctx context.Context, unit string) error {
	if unit == "" {
		return nil
	}
	return p.host.systemctl(ctx, "disable", "--now", systemd.UnitName)
}

// commandLog is the log of a command that works as a daemon does: what it does it prints, so that only errors are logged, unless its command line
// asks for more. Warnings are about what a daemon that goes on would have to live with.
func (p *program) commandLog(cfg *config.Loaded) *slog.Logger {
	l := cfg.Logging
	if !strings.HasPrefix(cfg.Sources["logging.level"], "--") {
		l.Level = "error"
	}
	return newLogger(p.rawErr(), l)
}

// sayNothingFound says where was looked in vain.
func (p *program) sayNothingFound(cfg *config.Loaded) {
	p.out().Printf("monopod is not installed here: there is no service, no %s and no %s\n", cfg.RootDirectory, cfg.StateDirectory)
}

// withdrawPrograms removes what this program was unpacked with, which may be elsewhere than rootDirectory, and the file by which runs
// keep subnets apart, unless others need them.
func (p *program) withdrawPrograms(cfg *config.Loaded, o *uninstallOptions) error {
	if at := p.host.unpacked(); !o.keepData || !strings.HasPrefix(at, cfg.RootDirectory+"/") {
		if err := bundle.Withdraw(at, "/proc"); err != nil {
			return err
		}
	}
	return removeUnlocked(p.machine.runs.subnetLocks)
}

// removeUnlocked removes a file of locks that nobody holds.
func removeUnlocked(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return ignoreGone(err)
	}
	defer f.Close()
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return errors.Join(err, os.Remove(path))
}
