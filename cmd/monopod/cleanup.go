package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"monopod/internal/config"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// cleanupPatience is how long removals that are still going on may take.
const cleanupPatience = 2 * time.Minute

func (p *program) cleanupCommand() *cobra.Command {
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
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&runs, "runs", false, "only what runs of once and up have left, their images included")
	p.asRoot(cmd, "cleanup must be started by root; try sudo", func(ctx context.Context, cfg *config.Loaded) error {
		if runs {
			return p.dropRuns(ctx, cfg)
		}
		return p.cleanup(ctx, cfg)
	})
	return cmd
}

func (p *program) cleanup(ctx context.Context, cfg *config.Loaded) error {
	swept := p.sweep(ctx, cfg)
	held, err := takeLocks(p.machine.patience, cfg.StateDirectory, cfg.RootDirectory)
	if err != nil {
		return errors.Join(swept, err)
	}
	defer held.release()
	return errors.Join(swept, p.giveBack(ctx, cfg, p.commandLog(cfg)), leaveBudget(p.host.cgroups, &cfg.Config))
}

// giveBack undoes what an instance without pods has set up. Its locks must be held.
func (p *program) giveBack(ctx context.Context, cfg *config.Loaded, log *slog.Logger) error {
	return p.giveBackAnd(ctx, cfg, log, func(context.Context, Runtime) error { return nil })
}

// giveBackAnd does something more, at the end.
func (p *program) giveBackAnd(ctx context.Context, cfg *config.Loaded, log *slog.Logger, more func(context.Context, Runtime) error) (err error) {
	rt, err := p.machine.open(ctx, cfg, log)
	for tries := 1; err != nil && tries < maxOpenFailures && ctx.Err() == nil; tries++ {
		log.Warn("containers cannot be seen now; trying again", "in", firstReopen, "err", err)
		sleep(ctx, firstReopen)
		rt, err = p.machine.open(ctx, cfg, log)
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
