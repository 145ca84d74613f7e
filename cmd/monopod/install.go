package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/atomicfile"
	"monopod/internal/bundle"
	"monopod/internal/config"
	"monopod/internal/printer"
	"monopod/node/budget"
	"monopod/node/systemd"
	"monopod/node/why"
)

// host is where monopod is installed; tests replace it.
type host struct {
	// units is the directory with the units of the administrator, booted exists while systemd runs.
	units, booted string
	// logind are the directories with drop-ins for logind, the lasting one first.
	logind []string
	// systemctl runs that program.
	systemctl func(ctx context.Context, args ...string) error
	// cgroups is where there are cgroups.
	cgroups budget.System
	// connect connects to logind.
	connect func(context.Context) (logind, error)
	// self is the program that runs, and whether it needs no others beside it.
	self func() (path string, whole bool, err error)
	// unpacked is the program that was unpacked to run; empty: it was not.
	unpacked func() string
}

func thisHost() host {
	return host{
		units: "/etc/systemd/system", booted: "/run/systemd/system",
		logind:    []string{"/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d"},
		systemctl: systemctl, connect: connectLogind, cgroups: budget.ThisProcess(),
		self: func() (string, bool, error) {
			if file := bundle.Launcher(); file != "" {
				return file, true, nil
			}
			exe, err := os.Executable()
			return exe, false, err
		},
		unpacked: func() string {
			exe, err := os.Executable()
			if err != nil || bundle.Launcher() == "" {
				return ""
			}
			return exe
		},
	}
}

// instanceOf returns the instance of a configuration: the zero one if the service starts it.
func (h *host) instanceOf(cfg *config.Loaded) why.Instance {
	unit, err := os.ReadFile(h.unit())
	switch {
	case err == nil && systemd.IsOurs(string(unit)) && ownUnit(cfg, string(unit)):
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

func (h *host) unit() string { return filepath.Join(h.units, systemd.UnitName) }

// hasSystemd says that systemd is process 1.
func (h *host) hasSystemd() bool {
	_, err := os.Stat(h.booted)
	return err == nil
}

// installOptions are the flags of `install`.
type installOptions struct {
	path    string
	noStart bool
}

func (p *program) installCommand() *cobra.Command {
	o := &installOptions{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make monopod a service of systemd, and start it",
		Long: "It writes monopod.service, makes the directories of manifests and data, and enables and starts the service. The bundle,\n" +
			"one file that needs nothing else, is copied to --path before; a plain build is started from where it is. With --config\n" +
			"the service has that configuration; other flags of the configuration are not taken. It can be repeated, to bring in another\n" +
			"release: the pods go on. `monopod uninstall` takes it all back.",
		Args: noArgs,
	}
	cmd.Flags().StringVar(&o.path, "path", "/usr/local/bin/monopod", "where the bundle is copied to")
	cmd.Flags().BoolVar(&o.noStart, "no-start", false, "only write the files")
	flags := &config.Flags{Set: cmd.Flags()}
	cmd.Flags().StringVar(&flags.File, "config", "", "configuration `file` (default "+config.DefaultFile+" if it exists)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(&config.Flags{File: flags.File}, p.env)
		if err != nil {
			return err
		}
		if wrong, _ := cfg.ProviderFaults(); len(wrong) > 0 {
			return wrong
		}
		if p.euid() != 0 {
			return errors.New("install must be started by root; try sudo")
		}
		var args []string
		if flags.File != "" {
			file, err := filepath.Abs(flags.File)
			if err != nil {
				return err
			}
			args = []string{"--config", file}
		}
		return p.install(cmd.Context(), cfg, o, args)
	}
	return cmd
}

func (p *program) install(ctx context.Context, cfg *config.Loaded, o *installOptions, args []string) error {
	h := &p.host
	if !h.hasSystemd() {
		return errors.New("systemd does not run here; have `monopod run` started by what does: see docs/machine.md")
	}
	old, err := os.ReadFile(h.unit())
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !systemd.IsOurs(string(old)):
		return fmt.Errorf("%s is there and not of `monopod install`; remove it, or go on with it", h.unit())
	}
	exe, err := p.place(o.path)
	if err != nil {
		return err
	}
	for _, dir := range []string{cfg.StaticPodPath, cfg.RootDirectory} {
		if _, err := os.Stat(dir); dir != "" && errors.Is(err, fs.ErrNotExist) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	if err := atomicfile.Write(h.unit(), []byte(systemd.Unit(exe, args...)), 0o644); err != nil {
		return err
	}
	p.out().Printf("%s runs %s; manifests are read from %s\n", h.unit(), exe, or(cfg.StaticPodPath, "no directory"))
	if err := h.systemctl(ctx, "daemon-reload"); err != nil || o.noStart {
		return err
	}
	if err := h.systemctl(ctx, "enable", systemd.UnitName); err != nil {
		return err
	}
	return h.systemctl(ctx, "restart", systemd.UnitName)
}

// place brings the program that runs to a path, if it can do without others beside it, and returns where it is then.
func (p *program) place(path string) (string, error) {
	exe, whole, err := p.host.self()
	if err != nil || !whole {
		return exe, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	if a, err := os.Stat(exe); err == nil {
		if b, err := os.Stat(path); err == nil && os.SameFile(a, b) {
			return path, nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, copyProgram(exe, path)
}

// tempProgram begins the names of copies that are not complete.
const tempProgram = ".monopod-"

// copyProgram replaces a program as a whole: it may be running.
func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := atomicfile.SweepOld(filepath.Dir(to), time.Now(), tempProgram); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(to), tempProgram)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreGone(os.Remove(tmp.Name())))
		}
	}()
	_, err = io.Copy(tmp, in)
	if err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(tmp.Name(), to), atomicfile.SyncDir(filepath.Dir(to)))
}
