package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"monopod/internal/cli"
	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/host"
	"monopod/internal/program"
	"monopod/internal/run"
	"monopod/internal/setup"
	"monopod/node"
	"monopod/node/capacity"
	"monopod/runner/ctrd/network"
)

func newProgram() *program.Program {
	return &program.Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: config.OSEnvironment(), Machine: daemon.Machine{
		Open: daemon.OpenCtrd, Addresses: node.Addresses, Capacity: capacity.Read, Gateways: daemon.ResolverGateways, Patience: daemon.LockPatience,
		Runs: daemon.RunMachine{SubnetLocks: "/run/monopod-subnets.lock", Free: network.Free, Keep: run.KeepRun},
	}, Host: host.This(), Euid: os.Geteuid}
}

// run executes a command line and returns the exit code.
func (p Commands) run(ctx context.Context, args []string) int {
	p.Words = append([]string{}, args...)
	root := p.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return program.ExitOK
	}
	if errors.Is(err, program.SilentError{}) {
		return program.ExitError
	}
	if c, ok := errors.AsType[program.CodeError](err); ok {
		if c.Err != nil {
			p.PrintError(c.Err)
		}
		return c.Code
	}
	p.PrintError(err)
	usage := program.ExitUsage
	if cmd.Annotations[program.OwnCodes] != "" {
		usage = program.ExitNotRun
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		return usage
	}
	if _, ok := errors.AsType[program.UsageError](err); ok {
		p.Errs().Printf("see `%s --help`\n", cmd.CommandPath())
		return usage
	}
	if usage == program.ExitNotRun {
		return program.ExitNotRun
	}
	return program.ExitError
}

// root returns the whole command tree.
func (p Commands) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "monopod",
		Short:         "Run Kubernetes Pods on this machine, from files and URLs, without Kubernetes",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			return program.Usagef("unknown command %q%s", args[0], program.AppendHint(config.DidYouMean(args[0], names)))
		},
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Raw()) // help, and the scripts and words of completion
	root.SetErr(p.RawErr())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return program.Usagef("%w", err) })
	p.addCommands(root)
	cli.NewCommands(p.Program).AddCompletion(root)
	return root
}

// commands makes each command that can be the first word.
func (p Commands) commands() map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"run": run.NewCommands(p.Program).RunCommand, "config": cli.NewCommands(p.Program).ConfigCommand, "validate": cli.NewCommands(p.Program).ValidateCommand, "get": cli.NewCommands(p.Program).GetCommand, "describe": cli.NewCommands(p.Program).DescribeCommand,
		"why": cli.NewCommands(p.Program).WhyCommand, "logs": cli.NewCommands(p.Program).LogsCommand, "events": cli.NewCommands(p.Program).EventsCommand, "history": cli.NewCommands(p.Program).HistoryCommand, "diff": cli.NewCommands(p.Program).DiffCommand,
		"rollback": cli.NewCommands(p.Program).RollbackCommand, "apply": cli.NewCommands(p.Program).ApplyCommand, "delete": cli.NewCommands(p.Program).DeleteCommand, "wait": cli.NewCommands(p.Program).WaitCommand, "status": cli.NewCommands(p.Program).StatusCommand,
		"drain": cli.NewCommands(p.Program).DrainCommand, "cordon": cli.NewCommands(p.Program).CordonCommand, "undrain": cli.NewCommands(p.Program).UndrainCommand, "once": run.NewCommands(p.Program).OnceCommand, "up": run.NewCommands(p.Program).UpCommand,
		"down": run.NewCommands(p.Program).DownCommand, "cleanup": run.NewCommands(p.Program).CleanupCommand, "install": setup.NewCommands(p.Program).InstallCommand, "uninstall": setup.NewCommands(p.Program).UninstallCommand,
		"version": cli.NewCommands(p.Program).VersionCommand, "images": cli.NewCommands(p.Program).ImagesCommand, "pull": cli.NewCommands(p.Program).PullCommand, "scale": cli.NewCommands(p.Program).ScaleCommand, "restart": cli.NewCommands(p.Program).RestartCommand,
		"exec": cli.NewCommands(p.Program).ExecCommand, "attach": cli.NewCommands(p.Program).AttachCommand, "port-forward": cli.NewCommands(p.Program).PortForwardCommand, "cp": cli.NewCommands(p.Program).CopyCommand, "top": cli.NewCommands(p.Program).TopCommand,
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
