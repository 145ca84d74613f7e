package change

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/cli"
	"monopod/internal/cli/describe"
	"monopod/internal/cli/history"
	"monopod/internal/cli/view"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/run"
	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// commands executes a command line: a command of this package, or of another one that a test needs.
func commands(ctx context.Context, p *clitest.Process, args []string) int {
	return clitest.Of(func(p *clitest.Process) []*cobra.Command {
		return []*cobra.Command{
			NewCommands(p.Program).ApplyCommand(),
			NewCommands(p.Program).DeleteCommand(),
			NewCommands(p.Program).WaitCommand(),
			NewCommands(p.Program).DrainCommand(),
			NewCommands(p.Program).CordonCommand(),
			NewCommands(p.Program).UndrainCommand(),
			NewCommands(p.Program).ScaleCommand(),
			NewCommands(p.Program).RestartCommand(),
			NewCommands(p.Program).RolloutCommand(),
			history.NewCommands(p.Program).HistoryCommand(),
			history.NewCommands(p.Program).RollbackCommand(),
			view.NewCommands(p.Program).GetCommand(),
			cli.NewCommands(p.Program).ConfigCommand(),
			describe.NewCommands(p.Program).DescribeCommand(),
			describe.NewCommands(p.Program).WhyCommand(),
			run.NewCommands(p.Program, p.Machine).RunCommand(),
		}
	})(ctx, p, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
