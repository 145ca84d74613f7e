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
func commands(ctx context.Context, p *clitest.Process, args []string) int {
	return clitest.Of(func(p *clitest.Process) []*cobra.Command {
		return []*cobra.Command{
			NewCommands(p.Program, p.Machine).RunCommand(),
			NewCommands(p.Program, p.Machine).OnceCommand(),
			NewCommands(p.Program, p.Machine).UpCommand(),
			NewCommands(p.Program, p.Machine).DownCommand(),
			NewCommands(p.Program, p.Machine).CleanupCommand(),
			attach.NewCommands(p.Program).LogsCommand(),
			change.NewCommands(p.Program).ApplyCommand(),
			change.NewCommands(p.Program).DrainCommand(),
			change.NewCommands(p.Program).UndrainCommand(),
			describe.NewCommands(p.Program).DescribeCommand(),
			describe.NewCommands(p.Program).WhyCommand(),
			history.NewCommands(p.Program).HistoryCommand(),
			view.NewCommands(p.Program).GetCommand(),
		}
	})(ctx, p, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
