package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/dirlock"
	"monopod/internal/host"
	"monopod/internal/pause"
	"monopod/internal/program"
)

// cleanupPatience bounds unfinished removals.
const cleanupPatience = 2 * time.Minute

// CleanupCommand returns `monopod cleanup`.
func (p Commands) CleanupCommand() *cobra.Command {
	var runs bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove network and cgroups of an empty instance",
		Long: "Removes what `monopod run` with the same configuration set up besides pods: its bridge, firewall rules and cgroups. Finishes interrupted removals of " +
			"pods first. Refused while the daemon runs or pods exist: remove their manifests and let the daemon stop them. Images stay in rootDirectory, which can " +
			"be deleted afterwards.\n\n" +
			"Before that, and also while the daemon runs, it removes leftovers of killed `once` and `up` runs, pods included. With --runs it does only that, and " +
			"also removes the images those runs used. Live runs and pods kept by `monopod once` are not touched: use `monopod down`.",
		Example: "monopod cleanup\nmonopod cleanup --runs",
		Args:    program.NoArgs,
	}
	cmd.Flags().BoolVar(&runs, "runs", false, "only leftovers of once and up runs, including their images")
	p.AsRoot(cmd, "cleanup must be started by root; try sudo", func(ctx context.Context, cfg *config.Loaded) error {
		if runs {
			return p.DropRuns(ctx, cfg)
		}
		return p.cleanup(ctx, cfg)
	})
	return cmd
}

func (p Commands) cleanup(ctx context.Context, cfg *config.Loaded) error {
	swept := p.sweep(ctx, cfg)
	held, err := dirlock.TakeLocks(p.Machine.LockTimeout, cfg.StateDirectory, cfg.RootDirectory)
	if err != nil {
		return errors.Join(swept, err)
	}
	defer held.Release()
	return errors.Join(swept, p.giveBack(ctx, cfg, p.CommandLog(cfg)), host.LeaveBudget(p.Host.Cgroups, &cfg.Config))
}

// giveBack undoes what an instance without pods has set up. Its locks must be held.
func (p Commands) giveBack(ctx context.Context, cfg *config.Loaded, log *slog.Logger) error {
	return p.GiveBackAnd(ctx, cfg, log, func(context.Context, containers.Runtime) error { return nil })
}

// GiveBackAnd does something more, at the end.
func (p Commands) GiveBackAnd(ctx context.Context, cfg *config.Loaded, log *slog.Logger, more func(context.Context, containers.Runtime) error) (err error) {
	rt, err := p.Machine.Open(ctx, cfg, containers.Deps{Log: log})
	for tries := 1; err != nil && tries < MaxOpenFailures && ctx.Err() == nil; tries++ {
		log.Warn("the runtime does not respond; retrying", "in", daemon.FirstReopen, "err", err)
		pause.For(ctx, daemon.FirstReopen)
		rt, err = p.Machine.Open(ctx, cfg, containers.Deps{Log: log})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	g, ctx := errgroup.WithContext(ctx)
	work, done := context.WithTimeout(ctx, cleanupPatience)
	defer done()
	g.Go(func() error { return rt.Run(work) })
	g.Go(func() error {
		defer done()
		if err := rt.Cleanup(work); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
		return more(work, rt)
	})
	return g.Wait()
}

// CommandLog is the log of a command that works like a daemon. Such a command prints its progress, so only errors are logged, unless its
// command line asks for more. Warnings are about conditions that matter only to a daemon that keeps running.
func (p Commands) CommandLog(cfg *config.Loaded) *slog.Logger {
	l := cfg.Logging
	if !strings.HasPrefix(cfg.Sources["logging.level"], "--") {
		l.Level = "error"
	}
	return daemon.NewLogger(p.RawErr(), l)
}
