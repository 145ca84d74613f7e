package program

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"monopod/internal/config"
)

// Root returns the command monopod without its commands. Words that name none of them are refused.
func (p *Program) Root() *cobra.Command {
	root := &cobra.Command{
		Use:           "monopod",
		Short:         "Run Kubernetes Pods on one machine, from files and URLs, without Kubernetes",
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
			return Usagef("unknown command %q%s", args[0], AppendHint(config.DidYouMean(args[0], names)))
		},
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Raw()) // help, and the scripts and words of completion
	root.SetErr(p.RawErr())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usagef("%w", err) })
	return root
}

// Execute executes a command line and returns the exit code. An error is printed.
func (p *Program) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, SilentError{}) {
		return ExitError
	}
	if c, ok := errors.AsType[CodeError](err); ok {
		if c.Err != nil {
			p.PrintError(c.Err)
		}
		return c.Code
	}
	p.PrintError(err)
	usage := ExitUsage
	if cmd.Annotations[OwnCodes] != "" {
		usage = ExitNotRun
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		return usage
	}
	if _, ok := errors.AsType[UsageError](err); ok {
		p.Errs().Printf("see `%s --help`\n", cmd.CommandPath())
		return usage
	}
	if usage == ExitNotRun {
		return ExitNotRun
	}
	return ExitError
}
