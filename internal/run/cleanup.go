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
	"monopod/internal/dirlock"
	"monopod/internal/host"
	"monopod/internal/pause"
	"monopod/internal/program"
)

// cleanupPatience is how long removals that are still going on may take.
const cleanupPatience = 2 * time.Minute

func (p Commands) CleanupCommand() *cobra.Command {
	var runs bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Give back the bridge, firewall rules and cgroups of an instance that has no pods any more",
		Long: "Undo what `monopod run` with the same configuration has set up on this machine besides pods: its bridge, its\n" +
			"firewall rules and its cgroups. Removals of pods that were going on are finished first. It refuses while the\n" +
			"daemon runs, and while there are pods: remove their manifests and let the daemon stop them. Images stay in\n" +
			"rootDirectory, which can be deleted afterwards.\n\n" +
			"Before, and also while the daemon runs, it removes what runs of `once` and `up` that were killed have left, pods\n" +
			"included. With --runs it does that only, and deletes the images that runs have used, too. Runs that are alive, and\n" +
			"what `once` has left on purpose, are not touched: that is for `monopod down`.",
		Args: program.NoArgs,
	}
	cmd.Flags().BoolVar(&runs, "runs", false, "only what runs of once and up have left, their images included")
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
	held, err := dirlock.TakeLocks(p.Machine.Patience, cfg.StateDirectory, cfg.RootDirectory)
	if err != nil {
		return errors.Join(swept, err)
	}
	defer held.Release()
	return errors.Join(swept, p.giveBack(ctx, cfg, p.CommandLog(cfg)), host.LeaveBudget(p.Host.Cgroups, &cfg.Config))
}

// giveBack undoes what an instance without pods has set up. Its locks must be held.
func (p Commands) giveBack(ctx context.Context, cfg *config.Loaded, log *slog.Logger) error {
	return p.GiveBackAnd(ctx, cfg, log, func(context.Context, daemon.Runtime) error { return nil })
}

// GiveBackAnd does something more, at the end.
func (p Commands) GiveBackAnd(ctx context.Context, cfg *config.Loaded, log *slog.Logger, more func(context.Context, daemon.Runtime) error) (err error) {
	rt, err := p.Machine.Open(ctx, cfg, log)
	for tries := 1; err != nil && tries < MaxOpenFailures && ctx.Err() == nil; tries++ {
		log.Warn("containers cannot be seen now; trying again", "in", daemon.FirstReopen, "err", err)
		pause.For(ctx, daemon.FirstReopen)
		rt, err = p.Machine.Open(ctx, cfg, log)
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

// CommandLog is the log of a command that works as a daemon does: what it does it prints, so that only errors are logged, unless its command line
// asks for more. Warnings are about what a daemon that goes on would have to live with.
func (p Commands) CommandLog(cfg *config.Loaded) *slog.Logger {
	l := cfg.Logging
	if !strings.HasPrefix(cfg.Sources["logging.level"], "--") {
		l.Level = "error"
	}
	return daemon.NewLogger(p.RawErr(), l)
}
