package run

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/cli/attach"
	"monopod/internal/cli/change"
	"monopod/internal/cli/describe"
	"monopod/internal/cli/history"
	"monopod/internal/cli/view"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	if clitest.IsDaemon() {
		clitest.ActAsDaemon(clitest.Commands(commands).Execute)
		return
	}
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// commands executes a command line: a command of this package, or of another one that a test needs.
func commands(ctx context.Context, p *program.Program, args []string) int {
	return clitest.Of(func(p *program.Program) []*cobra.Command {
		return []*cobra.Command{
			NewCommands(p).RunCommand(),
			NewCommands(p).OnceCommand(),
			NewCommands(p).UpCommand(),
			NewCommands(p).DownCommand(),
			NewCommands(p).CleanupCommand(),
			attach.NewCommands(p).LogsCommand(),
			change.NewCommands(p).ApplyCommand(),
			change.NewCommands(p).DrainCommand(),
			change.NewCommands(p).UndrainCommand(),
			describe.NewCommands(p).DescribeCommand(),
			describe.NewCommands(p).WhyCommand(),
			history.NewCommands(p).HistoryCommand(),
			view.NewCommands(p).GetCommand(),
		}
	})(ctx, p, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
