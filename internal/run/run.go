// Package run holds the commands that run pods in this process or in one of their own: run, once, up, down and cleanup.
//
// It must not decide how pods are run, which is the job of package daemon. Its goroutines end with the command.
package run

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/program"
	"monopod/internal/run/hostports"
	"monopod/internal/run/kept"
	"monopod/node/systemd"
)

// RunCommand returns `monopod run`.
func (p Commands) RunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon; pods outlive it",
		Long: "Runs the pods of the configured manifests. Must be root. SIGTERM and SIGINT stop the daemon and leave all pods running; the next start takes them " +
			"over. A second signal, a second or more later, ends it at once. Only one instance runs per rootDirectory and stateDirectory.",
		Example: "monopod run\nmonopod run --config=/etc/monopod/config.yaml\nmonopod run --static-pod-path=manifests --pod-cidr=10.20.0.0/24",
		Args:    program.NoArgs,
	}
	p.AsRoot(cmd, "run must be started by root, because it creates containers, mounts and networks; try sudo", p.serve)
	return cmd
}

// AsRoot makes cmd load its configuration and do its work, and refuse with denial without root.
func (p Commands) AsRoot(cmd *cobra.Command, denial string, do func(context.Context, *config.Loaded) error) {
	flags := p.ConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(flags, p.Env)
		if err != nil {
			return err
		}
		if p.Euid() != 0 {
			return errors.New(denial)
		}
		return do(cmd.Context(), cfg)
	}
}

// serve runs the daemon of this machine until ctx ends.
func (p Commands) serve(ctx context.Context, cfg *config.Loaded) error {
	manager := p.Manager
	if manager == nil {
		manager = systemd.FromEnvironment() // before anything is started that would inherit it
	}
	log := daemon.NewLogger(p.RawErr(), cfg.Logging)
	place := daemon.KeepToBudget(p.Host.Cgroups, cfg, log)
	lock, err := daemon.WaitForLock(ctx, cfg, manager, log)
	if err != nil || ctx.Err() != nil {
		return daemon.IgnoreCanceled(err)
	}
	if lock != nil {
		defer func() { _ = lock.Close() }() // after all else
	}
	deps := daemon.Deps{Log: log, Machine: p.Machine, Host: p.Host, Manager: manager, Cgroup: place, Copies: kept.Copies(filepath.Join(cfg.RootDirectory, KeptFile), log)}
	if cfg.ExitOnLockContention {
		deps.Lock = lock
	}
	d, err := daemon.Open(cfg, deps)
	if err != nil {
		return err
	}
	defer d.Close()
	held := ReserveAgain(cfg, log)
	return errors.Join(d.Run(ctx), hostports.CloseAll(held))
}
