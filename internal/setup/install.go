// Package setup installs monopod as a service of this machine, and uninstalls it with everything it has created.
//
// It must not change files that monopod did not create. It has no goroutines.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/atomicfile"
	"monopod/internal/config"
	"monopod/internal/program"
	"monopod/internal/run"
	"monopod/node/systemd"
)

// installOptions are the flags of `install`.
type installOptions struct {
	path    string
	noStart bool
}

// InstallCommand returns `monopod install`.
func (p Commands) InstallCommand() *cobra.Command {
	o := &installOptions{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install and start the systemd service",
		Long: "Writes monopod.service, creates the directories for manifests and data, enables and starts the service. The bundle is copied to --path first; a plain " +
			"build runs from where it is. With --config, the service uses that file; other configuration flags are not accepted. Repeat it to upgrade: pods " +
			"continue to run. `monopod uninstall` reverts it.",
		Example: "monopod install\nmonopod install --config=/etc/monopod/config.yaml --no-start",
		Args:    program.NoArgs,
	}
	cmd.Flags().StringVar(&o.path, "path", "/usr/local/bin/monopod", "`path` that the bundle is copied to")
	cmd.Flags().BoolVar(&o.noStart, "no-start", false, "only write files; do not start the service")
	flags := &config.Flags{Set: cmd.Flags()}
	cmd.Flags().StringVar(&flags.File, "config", "", "configuration `file` (default "+config.DefaultFile+" if it exists)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(&config.Flags{File: flags.File}, p.Env)
		if err != nil {
			return err
		}
		if wrong, _ := cfg.ProviderFaults(); len(wrong) > 0 {
			return wrong
		}
		if p.Euid() != 0 {
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

func (p Commands) install(ctx context.Context, cfg *config.Loaded, o *installOptions, args []string) error {
	h := &p.Host
	if !h.HasSystemd() {
		return errors.New("systemd not found; start `monopod run` from your init system (`monopod docs install`)")
	}
	old, err := os.ReadFile(h.Unit())
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !systemd.IsOurs(string(old)):
		return fmt.Errorf("%s exists and was not created by `monopod install`; remove it, or keep using it", h.Unit())
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
	if err := atomicfile.Write(h.Unit(), []byte(systemd.Unit(exe, args...)), 0o644); err != nil {
		return err
	}
	p.Out().Printf("%s runs %s; manifests are read from %s\n", h.Unit(), exe, cmp.Or(cfg.StaticPodPath, "no directory"))
	if err := h.Systemctl(ctx, "daemon-reload"); err != nil || o.noStart {
		return err
	}
	if err := h.Systemctl(ctx, "enable", systemd.UnitName); err != nil {
		return err
	}
	return h.Systemctl(ctx, "restart", systemd.UnitName)
}

// place copies the running program to a path, if it works without other files beside it, and returns the path of the program to use.
func (p Commands) place(path string) (string, error) {
	exe, whole, err := p.Host.Self()
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

// tempProgram is the prefix of incomplete copies.
const tempProgram = ".monopod-"

// copyProgram replaces a program atomically, because it may be running.
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
			err = errors.Join(err, run.IgnoreGone(os.Remove(tmp.Name())))
		}
	}()
	_, err = io.Copy(tmp, in)
	if err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(tmp.Name(), to), atomicfile.SyncDir(filepath.Dir(to)))
}
