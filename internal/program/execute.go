package program

import (
	"context"
	"errors"
	"strings"

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
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Raw()) // help, and the scripts and words of completion
	root.SetErr(p.RawErr())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usagef("%w", err) })
	return root
}

// otherWords are commands of podman, docker and kubectl that have another name here.
func otherWords() map[string]string {
	return map[string]string{
		"create": "apply -f FILE", "inspect": "describe", "ls": "get pods", "play": "apply -f FILE", "ps": "get pods", "rm": "delete", "rmi": "images rm", "stats": "top",
	}
}

// unknownCommand is the error about a word that is no command.
func unknownCommand(root *cobra.Command, word string) error {
	if other := otherWords()[word]; other != "" {
		return Usagef("unknown command %q; use `%s %s`", word, root.Name(), other)
	}
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	return Usagef("unknown command %q%s", word, AppendHint(config.DidYouMean(word, names)))
}

// flagOfUnknown returns the error about the command of a line whose flags the root has refused: a flag cannot be known if its command is
// not.
func flagOfUnknown(root *cobra.Command, args []string, err error) error {
	if _, usage := errors.AsType[UsageError](err); !usage || len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return err
	}
	if found, _, _ := root.Find(args[:1]); found != root {
		return err
	}
	return unknownCommand(root, args[0])
}

// Execute executes a command line and returns the exit code. An error is printed.
func (p *Program) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if cmd == root {
		err = flagOfUnknown(root, args, err)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) { // the address of a request that was interrupted helps nobody
		err = errors.New("interrupted")
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
