package cli

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/cli/attach"
	"monopod/internal/cli/change"
	"monopod/internal/cli/check"
	"monopod/internal/cli/describe"
	"monopod/internal/cli/view"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/run"
	"monopod/internal/setup"
	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// commands executes a command line: a command of this package, or one whose words completion knows.
func commands(ctx context.Context, p *clitest.Process, args []string) int {
	p.Words = append([]string{}, args...)
	root := p.Root()
	root.AddCommand(
		NewCommands(p.Program).ConfigCommand(),
		NewCommands(p.Program).VersionCommand(),
		check.NewCommands(p.Program).ValidateCommand(),
		setup.NewCommands(p.Program, p.Machine).InstallCommand(),
		view.NewCommands(p.Program).StatusCommand(),
		attach.NewCommands(p.Program).LogsCommand(),
		attach.NewCommands(p.Program).ExecCommand(),
		attach.NewCommands(p.Program).AttachCommand(),
		attach.NewCommands(p.Program).PortForwardCommand(),
		attach.NewCommands(p.Program).CopyCommand(),
		change.NewCommands(p.Program).WaitCommand(),
		describe.NewCommands(p.Program).DescribeCommand(),
		describe.NewCommands(p.Program).WhyCommand(),
		run.NewCommands(p.Program, p.Machine).RunCommand(),
		view.NewCommands(p.Program).GetCommand(),
		view.NewCommands(p.Program).TopCommand(),
	)
	NewCommands(p.Program).AddCompletion(root)
	return p.Execute(ctx, root, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
