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
	"monopod/internal/program"
	"monopod/internal/run"
	"monopod/internal/setup"
	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// commands executes a command line: a command of this package, or one whose words completion knows.
func commands(ctx context.Context, p *program.Program, args []string) int {
	p.Words = append([]string{}, args...)
	root := p.Root()
	root.AddCommand(
		NewCommands(p).ConfigCommand(),
		NewCommands(p).VersionCommand(),
		check.NewCommands(p).ValidateCommand(),
		setup.NewCommands(p).InstallCommand(),
		view.NewCommands(p).StatusCommand(),
		attach.NewCommands(p).LogsCommand(),
		attach.NewCommands(p).ExecCommand(),
		attach.NewCommands(p).AttachCommand(),
		attach.NewCommands(p).PortForwardCommand(),
		attach.NewCommands(p).CopyCommand(),
		change.NewCommands(p).WaitCommand(),
		describe.NewCommands(p).DescribeCommand(),
		describe.NewCommands(p).WhyCommand(),
		run.NewCommands(p).RunCommand(),
		view.NewCommands(p).GetCommand(),
		view.NewCommands(p).TopCommand(),
	)
	NewCommands(p).AddCompletion(root)
	return p.Execute(ctx, root, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
