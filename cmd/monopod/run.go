package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/node/systemd"
)

func (p *program) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the pods of the configured manifests until stopped; the pods go on running then",
		Long: "Run the daemon. It must be root. SIGTERM and SIGINT stop it and leave all pods running; the next start takes them\n" +
			"over as they are. A second signal ends it at once. Only one instance runs per rootDirectory and stateDirectory.",
		Args: noArgs,
	}
	p.asRoot(cmd, "run must be started by root, because it makes containers, mounts and networks; try sudo", p.serve)
	return cmd
}

// asRoot makes cmd load its configuration and do its work, and refuse with denial without root.
func (p *program) asRoot(cmd *cobra.Command, denial string, do func(context.Context, *config.Loaded) error) {
	flags := p.configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(flags, p.env)
		if err != nil {
			return err
		}
		if p.euid() != 0 {
			return errors.New(denial)
		}
		return do(cmd.Context(), cfg)
	}
}

// serve runs an App until ctx ends.
func (p *program) serve(ctx context.Context, cfg *config.Loaded) error {
	manager := p.manager
	if manager == nil {
		manager = systemd.FromEnvironment() // before anything is started that would inherit it
	}
	log := newLogger(p.rawErr(), cfg.Logging)
	place := keepToBudget(p.host.cgroups, cfg, log)
	lock, err := waitForLock(ctx, cfg, manager, log)
	if err != nil || ctx.Err() != nil {
		return ignoreCanceled(err)
	}
	if lock != nil {
		defer func() { _ = lock.Close() }() // after all else
	}
	app := NewApp(cfg, log, p.machine)
	app.manager, app.place = manager, place
	if err := app.Open(); err != nil {
		return err
	}
	defer app.Close()
	if cfg.ExitOnLockContention {
		app.lock = lock
	}
	if len(cfg.ShutdownGroups()) > 0 {
		app.shutdown = app.newShutdown(p.host)
	}
	held := reserveAgain(cfg, log)
	return errors.Join(app.Run(ctx), closeAll(held))
}
