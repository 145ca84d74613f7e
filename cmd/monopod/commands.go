package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/cli"
	"monopod/internal/cli/attach"
	"monopod/internal/cli/change"
	"monopod/internal/cli/check"
	"monopod/internal/cli/describe"
	"monopod/internal/cli/history"
	"monopod/internal/cli/images"
	"monopod/internal/cli/kubeconfig"
	"monopod/internal/cli/view"
	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/dirlock"
	"monopod/internal/host"
	"monopod/internal/program"
	"monopod/internal/reference"
	"monopod/internal/run"
	"monopod/internal/setup"
	"monopod/node/capacity"
	"monopod/node/netinfo"
	"monopod/runner/ctrd/network"
)

// newCommands returns the commands of this process, on this machine.
func newCommands() Commands {
	p := &program.Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: config.OSEnvironment(), Host: host.This(), Euid: os.Geteuid, ProgressAfter: 2 * time.Second}
	return Commands{p, daemon.Machine{
		Open: containers.OpenCtrd, Addresses: netinfo.Addresses, Capacity: capacity.Read, Gateways: containers.Gateways, Services: containers.ServiceRules, LockTimeout: dirlock.LockPatience,
		Runs: daemon.RunMachine{SubnetLocks: "/run/monopod-subnets.lock", Free: network.Free, Keep: run.KeepRun},
	}}
}

// run executes a command line and returns the exit code.
func (p Commands) run(ctx context.Context, args []string) int {
	p.Words = append([]string{}, args...)
	return p.Execute(ctx, p.root(), args)
}

// root returns the whole command tree.
func (p Commands) root() *cobra.Command {
	root := p.Root()
	p.addCommands(root)
	cli.NewCommands(p.Program).AddCompletion(root)
	reference.SetHelp(root, groups())
	return root
}

// commands returns the constructor of each command by its name.
func (p Commands) commands() map[string]func() *cobra.Command {
	runs := run.NewCommands(p.Program, p.Machine)
	own := cli.NewCommands(p.Program)
	checks := check.NewCommands(p.Program)
	views := view.NewCommands(p.Program)
	descriptions := describe.NewCommands(p.Program)
	revisions := history.NewCommands(p.Program)
	streams := attach.NewCommands(p.Program)
	changes := change.NewCommands(p.Program)
	setups := setup.NewCommands(p.Program, p.Machine)
	imgs := images.NewCommands(p.Program)
	return map[string]func() *cobra.Command{
		"run":          runs.RunCommand,
		"once":         runs.OnceCommand,
		"up":           runs.UpCommand,
		"down":         runs.DownCommand,
		"cleanup":      runs.CleanupCommand,
		"config":       own.ConfigCommand,
		"version":      own.VersionCommand,
		"docs":         own.DocsCommand,
		"validate":     checks.ValidateCommand,
		"get":          views.GetCommand,
		"describe":     descriptions.DescribeCommand,
		"why":          descriptions.WhyCommand,
		"events":       descriptions.EventsCommand,
		"history":      revisions.HistoryCommand,
		"diff":         revisions.DiffCommand,
		"rollback":     revisions.RollbackCommand,
		"status":       views.StatusCommand,
		"top":          views.TopCommand,
		"logs":         streams.LogsCommand,
		"exec":         streams.ExecCommand,
		"attach":       streams.AttachCommand,
		"debug":        streams.DebugCommand,
		"port-forward": streams.PortForwardCommand,
		"cp":           streams.CopyCommand,
		"apply":        changes.ApplyCommand,
		"delete":       changes.DeleteCommand,
		"wait":         changes.WaitCommand,
		"drain":        changes.DrainCommand,
		"cordon":       changes.CordonCommand,
		"undrain":      changes.UndrainCommand,
		"scale":        changes.ScaleCommand,
		"restart":      changes.RestartCommand,
		"rollout":      changes.RolloutCommand,
		"install":      setups.InstallCommand,
		"uninstall":    setups.UninstallCommand,
		"images":       imgs.ImagesCommand,
		"pull":         imgs.PullCommand,
		"kubeconfig":   kubeconfig.NewCommands(p.Program).KubeconfigCommand,
	}
}

// addCommands adds the command that the command line names, or all of them: for help, completion and advice.
func (p Commands) addCommands(root *cobra.Command) {
	all := p.commands()
	if len(p.Words) > 0 && all[p.Words[0]] != nil {
		root.AddCommand(all[p.Words[0]]())
		return
	}
	for _, one := range all {
		root.AddCommand(one())
	}
}
