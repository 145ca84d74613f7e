package main

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
	"monopod/manifests"
	"monopod/node/systemd"
	"monopod/runner"
	"monopod/watcher"
)

// uninstallOptions are the flags of `uninstall`.
type uninstallOptions struct {
	yes, keepData bool
}

func (p *program) uninstallCommand() *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop all pods and remove everything that monopod has made on this machine",
		Long: "It stops the service, or the daemon that runs with this configuration, then all pods, each with its grace period, and\n" +
			"removes them with their volumes and logs; then runs of `once`, the images, bridge, firewall rules, cgroups, the unit, the\n" +
			"copy of the program that `install` has made, and the directories of monopod. Manifests, configuration and credentials are\n" +
			"somebody's own and stay, as does whatever else is found in directories that monopod shares with others. It says what it is\n" +
			"about to do and asks first, can be repeated when it was cut off, and removes nothing that a file system of somebody else\n" +
			"is mounted on.",
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.keepData, "keep-data", false, "leave rootDirectory: images, volumes of claims, what was applied")
	p.asRoot(cmd, "uninstall must be started by root; try sudo", func(ctx context.Context, cfg *config.Loaded) error {
		return p.uninstall(ctx, cfg, o)
	})
	return cmd
}

func (p *program) uninstall(ctx context.Context, cfg *config.Loaded, o *uninstallOptions) error {
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
	defer held.release()
	if err := p.removeRuns(ctx, cfg); err != nil {
		return err
	}
	if there.ran {
		if err := p.removeWorkloads(ctx, cfg, o); err != nil {
			return err
		}
	}
	if err := leaveBudget(p.host.cgroups, &cfg.Config); err != nil {
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
	p.out().Println("monopod is uninstalled")
	return nil
}

// agreed says what is about to be done, and asks.
func (p *program) agreed(cfg *config.Loaded, o *uninstallOptions) (bool, error) {
	data := "the images, volumes and all else in " + cfg.RootDirectory
	if o.keepData {
		data = "and leaves " + cfg.RootDirectory
	}
	p.out().Printf("This stops and removes all pods of monopod, and removes %s, what is in %s,\nits network, cgroups and service.\n", data, cfg.StateDirectory)
	if o.yes {
		return true, nil
	}
	p.out().Printf("Go on? Write yes: ")
	line, err := bufio.NewReader(p.stdin).ReadString('\n')
	if strings.TrimSpace(line) == "yes" {
		return true, nil
	}
	if err != nil {
		return false, errors.New("nothing was done: nobody has answered; --yes does not ask")
	}
	p.out().Println("Nothing was done.")
	return false, nil
}

// takeFromDaemon takes the locks, after it has told a daemon that holds them to end.
func (p *program) takeFromDaemon(ctx context.Context, cfg *config.Loaded) (locks, error) {
	asked := 0
	for deadline := time.Now().Add(keeperEnd); ; sleep(ctx, lookAgain/4) {
		held, err := takeLocks(0, cfg.StateDirectory, cfg.RootDirectory)
		if !isHeld(err) || time.Now().After(deadline) || ctx.Err() != nil {
			return held, err
		}
		pid := lockHolder(cfg.StateDirectory)
		if pid == 0 {
			pid = lockHolder(cfg.RootDirectory)
		}
		if pid == 0 || pid == asked {
			continue
		}
		p.out().Printf("stopping the monopod that runs (pid %d)\n", pid)
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("stop monopod (pid %d): %w", pid, err)
		}
		asked = pid
	}
}

// lockHolder is the process that a directory's lock file names, if somebody holds it.
func lockHolder(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, lockName))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil || pid <= 1 || pid == os.Getpid() {
		return 0
	}
	return pid
}

// removeRuns removes the runs of `once` and `up`.
func (p *program) removeRuns(ctx context.Context, cfg *config.Loaded) error {
	there, err := slots(cfg)
	if err != nil {
		return err
	}
	for _, s := range there {
		if s.kept() {
			if err := p.downSlot(ctx, s); err != nil {
				return err
			}
		}
	}
	return p.dropRuns(ctx, cfg)
}

// removeWorkloads removes all pods, then what they were run with.
func (p *program) removeWorkloads(ctx context.Context, cfg *config.Loaded, o *uninstallOptions) error {
	log := p.commandLog(cfg)
	if err := p.removePods(ctx, cfg, log); err != nil {
		return err
	}
	return p.giveBackAnd(ctx, cfg, log, func(ctx context.Context, rt Runtime) error {
		if o.keepData || cfg.ContainerRuntimeEndpoint == "" {
			return nil
		}
		return rt.Purge(ctx)
	})
}

// removePods removes all pods as if nobody wanted them any more, and waits until they are gone. The locks must be held.
func (p *program) removePods(ctx context.Context, cfg *config.Loaded, log *slog.Logger) error {
	m := p.machine
	broken, failures := make(chan error, 1), 0
	m.open = func(ctx context.Context, cfg *config.Loaded, log *slog.Logger) (Runtime, error) {
		rt, err := p.machine.open(ctx, cfg, log)
		if err != nil {
			if failures++; failures == maxOpenFailures {
				broken <- err
			}
		}
		return rt, err
	}
	app := NewApp(cfg, log, m)
	app.lent, app.removing = true, true
	app.only = []watcher.Source{newStaged(&content{})}
	app.board.stir = p.told(app.board.stir)
	if err := app.Open(); err != nil {
		return err
	}
	defer app.Close()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- app.Run(running) }()
	err := p.untilGone(ctx, app, broken)
	stop()
	return errors.Join(err, <-ended)
}

// told says of each pod that changes that it goes.
func (p *program) told(next func(runner.Change)) func(runner.Change) {
	said := map[manifests.Key]bool{}
	return func(c runner.Change) {
		if !said[c.Key] {
			said[c.Key] = true
			p.out().Println("removing pod", c.Key)
		}
		next(c)
	}
}

// untilGone waits until an App has no pods.
func (p *program) untilGone(ctx context.Context, app *App, broken <-chan error) error {
	changed, cancel := app.board.Subscribe()
	defer cancel()
	for !app.board.emptied() {
		select {
		case <-changed:
		case <-time.After(lookAgain):
		case err := <-broken:
			return fmt.Errorf("containers cannot be seen: %w", err)
		case <-ctx.Done():
			return errors.New("cut off; `monopod uninstall` goes on where it was")
		}
	}
	return nil
}

// removeService removes what `install` has written.
func (p *program) removeService(ctx context.Context, unit string) error {
	h := &p.host
	reload, err := systemd.RemoveDropIns(h.logind...)
	if err != nil {
		return err
	}
	if reload && h.hasSystemd() {
		if err := h.systemctl(ctx, "kill", "--signal=HUP", "systemd-logind.service"); err != nil {
			return err
		}
	}
	if unit == "" {
		return nil
	}
	exe, whole, err := h.self()
	if err != nil {
		return err
	}
	if at := systemd.Program(unit); whole && sameFile(at, exe) {
		if err := ignoreGone(os.Remove(at)); err != nil {
			return err
		}
	}
	if err := ignoreGone(os.Remove(h.unit())); err != nil {
		return err
	}
	return h.systemctl(ctx, "daemon-reload")
}

// sameFile says that two paths have the same content: that of one program.
func sameFile(a, b string) bool {
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// kept are the files and directories of somebody that may be in one of monopod's.
func kept(cfg *config.Loaded) []string {
	return slices.Concat([]string{cfg.RegistryConfig, cfg.SeccompProfileRoot, cfg.StaticPodPath}, cfg.PreloadDirectories, cfg.Files)
}

// removeDirectory removes a directory of monopod, but not what is to be kept, and nothing at all while other file systems
// are mounted in it. One that is a mount point itself is emptied.
func removeDirectory(dir string, keep []string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is not removed: there are file systems mounted on %s; unmount them", dir, strings.Join(mounts, ", "))
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

// places are where paths lead to, with the links that they end in.
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

// mountsBelow are the mount points below a directory.
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

// unescape is a path of mountinfo without its octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
