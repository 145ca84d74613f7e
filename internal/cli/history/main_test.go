package history

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/cli/describe"
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
			NewCommands(p.Program).HistoryCommand(),
			NewCommands(p.Program).DiffCommand(),
			NewCommands(p.Program).RollbackCommand(),
			view.NewCommands(p.Program).GetCommand(),
			describe.NewCommands(p.Program).DescribeCommand(),
			describe.NewCommands(p.Program).WhyCommand(),
			describe.NewCommands(p.Program).EventsCommand(),
			run.NewCommands(p.Program, p.Machine).RunCommand(),
		}
	})(ctx, p, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
