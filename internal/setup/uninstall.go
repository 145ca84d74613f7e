package setup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/dirlock"
	"monopod/internal/host"
	"monopod/internal/pause"
	"monopod/internal/program"
	"monopod/internal/run"
	"monopod/manifests"
	"monopod/node/systemd"
	"monopod/runner/pool"
	"monopod/watcher/emptied"
)

// uninstallOptions are the flags of `uninstall`.
type uninstallOptions struct {
	yes, keepData bool
}

// UninstallCommand returns `monopod uninstall`.
func (p Commands) UninstallCommand() *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop all pods and remove monopod",
		Long: "Stops the service or the daemon with this configuration, then all pods within their grace periods, and removes them with their volumes and logs. Then " +
			"removes `once` runs, images, bridge, firewall rules, cgroups, the unit, the installed program and the directories of monopod. Manifests, " +
			"configuration, credentials and foreign files in shared directories stay. Nothing is removed that a foreign file system is mounted on.\n\n" +
			"Lists what will be removed and asks for confirmation. Can be repeated if interrupted.",
		Example: "monopod uninstall\nmonopod uninstall --yes --keep-data",
		Args:    program.NoArgs,
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&o.keepData, "keep-data", false, "keep rootDirectory: images, volumes of claims, applied objects")
	run.Commands(p).AsRoot(cmd, "uninstall must be started by root; try sudo", func(ctx context.Context, cfg *config.Loaded) error {
		return p.uninstall(ctx, cfg, o)
	})
	return cmd
}

func (p Commands) uninstall(ctx context.Context, cfg *config.Loaded, o *uninstallOptions) error {
	there, err := p.find(cfg)
	if err != nil {
		return err
	}
	if there.nothing() {
		p.sayNothingFound(cfg)
		return nil
	}
	if ok, err := p.agreed(cfg, o); !ok || err != nil {
		return err
	}
	if err := p.stopService(ctx, there.unit); err != nil {
		return err
	}
	held, err := p.takeFromDaemon(ctx, cfg)
	if err != nil {
		return err
	}
	defer held.Release()
	if err := p.removeRuns(ctx, cfg); err != nil {
		return err
	}
	if there.ran {
		if err := p.removeWorkloads(ctx, cfg, o); err != nil {
			return err
		}
	}
	if err := host.LeaveBudget(p.Host.Cgroups, &cfg.Config); err != nil {
		return err
	}
	dirs := []string{cfg.StateDirectory}
	if !o.keepData {
		dirs = append(dirs, cfg.RootDirectory)
	}
	for _, dir := range dirs {
		if err := removeDirectory(dir, kept(cfg)); err != nil {
			return err
		}
	}
	if !there.other {
		if err := p.removeService(ctx, there.unit); err != nil {
			return err
		}
	}
	if err := p.withdrawPrograms(cfg, o); err != nil {
		return err
	}
	for _, dir := range ownDirectories(cfg) {
		_ = os.Remove(dir) // unless there is something in it
	}
	p.Out().Println("monopod is uninstalled")
	return nil
}

// agreed prints what will be removed and asks for confirmation.
func (p Commands) agreed(cfg *config.Loaded, o *uninstallOptions) (bool, error) {
	data := "images, volumes and everything else in " + cfg.RootDirectory
	if o.keepData {
		data = "and leaves " + cfg.RootDirectory
	}
	p.Out().Printf("This stops and removes all pods of monopod, and removes %s, the contents of %s,\nits network, cgroups and service.\n", data, cfg.StateDirectory)
	if o.yes {
		return true, nil
	}
	p.Out().Printf("Continue? Type yes: ")
	line, err := bufio.NewReader(p.Stdin).ReadString('\n')
	if strings.TrimSpace(line) == "yes" {
		return true, nil
	}
	if err != nil {
		return false, errors.New("aborted: not confirmed (use --yes)")
	}
	return false, errors.New("aborted: nothing was removed")
}

// takeFromDaemon takes the locks. A daemon that holds them is asked to exit first.
func (p Commands) takeFromDaemon(ctx context.Context, cfg *config.Loaded) (dirlock.Locks, error) {
	asked := 0
	for deadline := time.Now().Add(run.KeeperEnd); ; pause.For(ctx, daemon.PollInterval/4) {
		held, err := dirlock.TakeLocks(0, cfg.StateDirectory, cfg.RootDirectory)
		if !dirlock.IsHeld(err) || time.Now().After(deadline) || ctx.Err() != nil {
			return held, err
		}
		pid := lockHolder(cfg.StateDirectory)
		if pid == 0 {
			pid = lockHolder(cfg.RootDirectory)
		}
		if pid == 0 || pid == asked {
			continue
		}
		p.Out().Printf("stopping the running monopod (pid %d)\n", pid)
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("stop monopod (pid %d): %w", pid, err)
		}
		asked = pid
	}
}

// lockHolder returns the process that holds the lock file of a directory; 0 if it is unlocked.
func lockHolder(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, dirlock.LockName))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil || pid <= 1 || pid == os.Getpid() {
		return 0
	}
	return pid
}

// removeRuns removes the runs of `once` and `up`.
func (p Commands) removeRuns(ctx context.Context, cfg *config.Loaded) error {
	there, err := run.Slots(cfg)
	if err != nil {
		return err
	}
	for _, s := range there {
		if s.Kept() {
			if err := run.Commands(p).DownSlot(ctx, s); err != nil {
				return err
			}
		}
	}
	return run.Commands(p).DropRuns(ctx, cfg)
}

// removeWorkloads removes all pods, then the resources that they used.
func (p Commands) removeWorkloads(ctx context.Context, cfg *config.Loaded, o *uninstallOptions) error {
	log := run.Commands(p).CommandLog(cfg)
	if err := p.removePods(ctx, cfg, log); err != nil {
		return err
	}
	return run.Commands(p).GiveBackAnd(ctx, cfg, log, func(ctx context.Context, rt containers.Runtime) error {
		if o.keepData || cfg.ContainerRuntimeEndpoint == "" {
			return nil
		}
		return rt.Purge(ctx)
	})
}

// removePods removes all pods as if their manifests were gone, and waits until the removal is complete. The caller must hold the locks.
func (p Commands) removePods(ctx context.Context, cfg *config.Loaded, log *slog.Logger) error {
	m := p.Machine
	broken, failures := make(chan error, 1), 0
	m.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
		rt, err := p.Machine.Open(ctx, cfg, deps)
		if err != nil {
			if failures++; failures == run.MaxOpenFailures {
				broken <- err
			}
		}
		return rt, err
	}
	d, err := daemon.OpenRemoval(cfg, daemon.Deps{Log: log, Machine: m}, emptied.Fixed((&run.Content{}).Set()), p.printRemovals())
	if err != nil {
		return err
	}
	defer d.Close()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(running) }()
	err = p.untilGone(ctx, d, broken)
	stop()
	return errors.Join(err, <-ended)
}

// printRemovals returns a function that prints each pod once.
func (p Commands) printRemovals() func(pool.Change) {
	printed := map[manifests.Key]bool{}
	return func(c pool.Change) {
		if !printed[c.Key] {
			printed[c.Key] = true
			p.Out().Println("removing pod", c.Key)
		}
	}
}

// untilGone waits until a daemon has no pods.
func (p Commands) untilGone(ctx context.Context, d *daemon.Daemon, broken <-chan error) error {
	changed, cancel := d.State.Subscribe()
	defer cancel()
	for !d.State.Empty() {
		select {
		case <-changed:
		case <-time.After(daemon.PollInterval):
		case err := <-broken:
			return fmt.Errorf("the runtime does not respond: %w", err)
		case <-ctx.Done():
			return errors.New("interrupted; run `monopod uninstall` again to resume")
		}
	}
	return nil
}

// removeService removes the files that `install` wrote.
func (p Commands) removeService(ctx context.Context, unit string) error {
	h := &p.Host
	reload, err := systemd.RemoveDropIns(h.Logind...)
	if err != nil {
		return err
	}
	if reload && h.HasSystemd() {
		if err := h.Systemctl(ctx, "kill", "--signal=HUP", "systemd-logind.service"); err != nil {
			return err
		}
	}
	if unit == "" {
		return nil
	}
	exe, whole, err := h.Self()
	if err != nil {
		return err
	}
	if at := systemd.Program(unit); whole && sameFile(at, exe) {
		if err := run.IgnoreGone(os.Remove(at)); err != nil {
			return err
		}
	}
	if err := run.IgnoreGone(os.Remove(h.Unit())); err != nil {
		return err
	}
	return h.Systemctl(ctx, "daemon-reload")
}

// sameFile reports whether both paths are copies of the same program.
func sameFile(a, b string) bool {
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// kept returns files and directories of the user that may be inside directories of monopod.
func kept(cfg *config.Loaded) []string {
	return slices.Concat([]string{cfg.RegistryConfig, cfg.SeccompProfileRoot, cfg.StaticPodPath}, cfg.PreloadDirectories, cfg.Files)
}

// removeDirectory removes a directory of monopod, except the paths in keep. It removes nothing while other file systems are mounted below
// it. A directory that is a mount point itself is emptied instead.
func removeDirectory(dir string, keep []string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is not removed: file systems are mounted on %s; unmount them", dir, strings.Join(mounts, ", "))
	}
	place, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := removeBelow(place, places(keep)); err != nil {
		return err
	}
	if _, err := os.Stat(place); place != filepath.Clean(dir) && errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(dir) // the link to it
	}
	return nil
}

// places returns the paths with their symbolic links resolved, together with the links themselves.
func places(paths []string) []string {
	var all []string
	for _, path := range paths {
		if path == "" {
			continue
		}
		if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			all = append(all, filepath.Join(parent, filepath.Base(path)))
		}
		if place, err := filepath.EvalSymlinks(path); err == nil {
			all = append(all, place)
		}
	}
	return all
}

func removeBelow(dir string, keep []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case slices.Contains(keep, path):
		case e.IsDir() && slices.ContainsFunc(keep, func(k string) bool { return strings.HasPrefix(k, path+"/") }):
			err = errors.Join(err, removeBelow(path, keep))
		default:
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	_ = os.Remove(dir) // unless there is something to be kept, or it is a mount point
	return err
}

// mountsBelow returns the mount points below a directory.
func mountsBelow(dir string) ([]string, error) {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var below []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			if at := unescape(f[4]); strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/") {
				below = append(below, at)
			}
		}
	}
	return below, nil
}

// unescape decodes the octal escapes of a path in mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
