package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// cleanupPatience is how long removals that are still going on may take.
const cleanupPatience = 2 * time.Minute

func (p *program) cleanupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Give back the bridge, firewall rules and cgroups of an instance that has no pods any more",
		Long: "Undo what `monopod run` with the same configuration has set up on this machine besides pods: its bridge, its\n" +
			"firewall rules and its cgroups. Removals of pods that were going on are finished first. It refuses while the\n" +
			"daemon runs, and while there are pods: remove their manifests and let the daemon stop them. Images stay in\n" +
			"rootDirectory, which can be deleted afterwards.",
		Args: noArgs,
	}
	p.asRoot(cmd, "cleanup must be started by root; try sudo", p.cleanup)
	return cmd
}

func (p *program) cleanup(ctx context.Context, cfg *LoadedConfig) (err error) {
	held, err := takeLocks(p.machine.patience, cfg.StateDirectory, cfg.RootDirectory)
	if err != nil {
		return err
	}
	defer held.release()
	rt, err := p.machine.open(ctx, cfg, newLogger(p.stderr, cfg.Logging))
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
		return nil
	})
	return g.Wait()
}
