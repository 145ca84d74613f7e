package setup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/bundle"
	"monopod/internal/config"
	"monopod/internal/host"
	"monopod/internal/run"
	"monopod/node/systemd"
)

// found is what an instance has on this machine before it is uninstalled.
type found struct {
	// unit is the content of the unit file; empty if the instance has none.
	unit string
	// other means that the unit belongs to another instance; it is kept with everything that belongs to it.
	other bool
	// ran means that a runtime may have been open with this configuration. Only then is one opened to remove pods and the network.
	ran bool
	// stored means that the instance, or one of its runs, has a directory.
	stored bool
}

// nothing reports whether uninstall has nothing to do.
func (f found) nothing() bool { return f.unit == "" && !f.ran && !f.stored }

// find inspects the machine without changing it.
func (p Commands) find(cfg *config.Loaded) (found, error) {
	f := found{
		ran:    exists(cfg.StateDirectory) || exists(filepath.Join(cfg.RootDirectory, "containerd")) || cfg.ContainerRuntimeEndpoint != "",
		stored: exists(cfg.RootDirectory) || exists(cfg.RootDirectory+run.RunsSuffix),
	}
	b, err := os.ReadFile(p.Host.Unit())
	switch unit := string(b); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return f, err
	case !systemd.IsOurs(unit):
	case !host.OwnUnit(cfg, unit):
		f.other = true
	case p.Host.HasSystemd():
		f.unit = unit
	}
	return f, nil
}

// exists reports whether a path exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ownDirectories are removed if they are empty: the directory for manifests and, for an instance without a configuration file of its own,
// that of the default file.
func ownDirectories(cfg *config.Loaded) []string {
	dirs := []string{cfg.StaticPodPath}
	if len(cfg.Files) == 0 || cfg.Files[0] == config.DefaultFile {
		dirs = append(dirs, filepath.Dir(config.DefaultFile))
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
}

// stopService stops and disables a unit, if it exists.
func (p Commands) stopService(ctx context.Context, unit string) error {
	if unit == "" {
		return nil
	}
	return p.Host.Systemctl(ctx, "disable", "--now", systemd.UnitName)
}

// sayNothingFound prints where uninstall has looked.
func (p Commands) sayNothingFound(cfg *config.Loaded) {
	p.Out().Printf("monopod is not installed here: there is no service, no %s and no %s\n", cfg.RootDirectory, cfg.StateDirectory)
}

// withdrawPrograms removes the directory into which this program was unpacked, which may be outside rootDirectory, and the file with which
// runs reserve subnets, unless other instances need them.
func (p Commands) withdrawPrograms(cfg *config.Loaded, o *uninstallOptions) error {
	if at := p.Host.Unpacked(); !o.keepData || !strings.HasPrefix(at, cfg.RootDirectory+"/") {
		if err := bundle.Withdraw(at, "/proc"); err != nil {
			return err
		}
	}
	return removeUnlocked(p.Machine.Runs.SubnetLocks)
}

// removeUnlocked removes a lock file unless a process holds it.
func removeUnlocked(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return run.IgnoreGone(err)
	}
	defer f.Close()
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return errors.Join(err, os.Remove(path))
}
