package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/printer"
	"monopod/node"
	"monopod/node/capacity"
	"monopod/node/systemd"
	"monopod/runner/ctrd/network"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	// exitUsage is for command lines and configurations that cannot be understood.
	exitUsage = 2
	// exitTimeout is for what did not come in time: pods of a run that are not up, say.
	exitTimeout = 2
	// exitNotRun says that a run did not come to what its exit code is about.
	exitNotRun = 125
	// exitSignal is what a shell reports for Ctrl-C.
	exitSignal = 130
)

// program is monopod with everything it touches of the process around it.
type program struct {
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	env     config.Environment
	machine machine
	host    host
	// euid tells whether this is root.
	euid func() int
	// manager is the service manager that has started this process; nil: it is looked for.
	manager *systemd.Notifier
	// signals is nil in tests.
	signals *interrupts
	// limits are those of clients; nil: the usual ones.
	limits *node.Limits
	// words are those of the command line; nil: there is none, and all commands are complete.
	words []string
}

func newProgram() *program {
	return &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: config.OSEnvironment(), machine: machine{
		open: openCtrd, addresses: node.Addresses, capacity: capacity.Read, gateways: resolverGateways, patience: lockPatience,
		runs: runMachine{subnetLocks: "/run/monopod-subnets.lock", free: network.Free, keep: keepRun},
	}, host: thisHost(), euid: os.Geteuid}
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

// codeError ends the program with a code of its own. Without an error, what is wrong has been printed already.
type codeError struct {
	code int
	err  error
}

// Error implements error.
func (e codeError) Error() string { return fmt.Sprint(e.err) }

// ownCodes marks commands whose exit codes are those of what they run: all that is wrong besides is exitNotRun.
const ownCodes = "exit-codes"

// silentError ends the program with exitError; what is wrong has been printed already.
type silentError struct{}

func (silentError) Error() string { return "" }

// run executes a command line and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	p.words = append([]string{}, args...)
	root := p.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if errors.Is(err, silentError{}) {
		return exitError
	}
	if c, ok := errors.AsType[codeError](err); ok {
		if c.err != nil {
			p.printError(c.err)
		}
		return c.code
	}
	p.printError(err)
	usage := exitUsage
	if cmd.Annotations[ownCodes] != "" {
		usage = exitNotRun
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		return usage
	}
	if _, ok := errors.AsType[usageError](err); ok {
		p.errs().Printf("see `%s --help`\n", cmd.CommandPath())
		return usage
	}
	if usage == exitNotRun {
		return exitNotRun
	}
	return exitError
}

// printError prints each line of an error with a mark.
func (p *program) printError(err error) {
	for _, l := range printer.ErrorLines(err) {
		p.errs().Println("monopod:", l)
	}
}

// root returns the whole command tree.
func (p *program) root() *cobra.Command {
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
			return usagef("unknown command %q%s", args[0], appendHint(config.DidYouMean(args[0], names)))
		},
	}
	root.SetIn(p.stdin)
	root.SetOut(p.raw()) // help, and the scripts and words of completion
	root.SetErr(p.rawErr())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	p.addCommands(root)
	p.addCompletion(root)
	return root
}

// commands makes each command that can be the first word.
func (p *program) commands() map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"run": p.runCommand, "config": p.configCommand, "validate": p.validateCommand, "get": p.getCommand, "describe": p.describeCommand,
		"why": p.whyCommand, "logs": p.logsCommand, "events": p.eventsCommand, "history": p.historyCommand, "diff": p.diffCommand,
		"rollback": p.rollbackCommand, "apply": p.applyCommand, "delete": p.deleteCommand, "wait": p.waitCommand, "status": p.statusCommand,
		"drain": p.drainCommand, "cordon": p.cordonCommand, "undrain": p.undrainCommand, "once": p.onceCommand, "up": p.upCommand,
		"down": p.downCommand, "cleanup": p.cleanupCommand, "install": p.installCommand, "uninstall": p.uninstallCommand,
		"version": p.versionCommand, "images": p.imagesCommand, "pull": p.pullCommand, "scale": p.scaleCommand, "restart": p.restartCommand,
		"exec": p.execCommand, "attach": p.attachCommand, "port-forward": p.portForwardCommand, "cp": p.copyCommand, "top": p.topCommand,
	}
}

// addCommands adds the command that the command line names, or all of them: for help, completion and advice.
func (p *program) addCommands(root *cobra.Command) {
	all := p.commands()
	if len(p.words) > 0 && all[p.words[0]] != nil {
		root.AddCommand(all[p.words[0]]())
		return
	}
	for _, one := range all {
		root.AddCommand(one())
	}
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func appendHint(hint string) string {
	if hint == "" {
		return ""
	}
	return "; " + hint
}

// noArgs refuses arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// oneOfOutputs checks an -o flag.
func oneOfOutputs(output string, allowed ...string) error {
	if output == "" || slices.Contains(allowed, output) {
		return nil
	}
	return usagef("unknown output format %q; one of %s", output, strings.Join(allowed, ", "))
}

// configFlags gives cmd --config and a flag for each key. There are so many that only commands that are named get them.
func (p *program) configFlags(cmd *cobra.Command) *config.Flags {
	if p.words != nil && !slices.Contains(p.words, cmd.Name()) {
		return &config.Flags{Set: cmd.Flags()}
	}
	return config.AddFlags(cmd.Flags())
}
