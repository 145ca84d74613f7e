package attach

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/run"
	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// commands executes a command line: a command of this package, or of another one that a test needs.
func commands(ctx context.Context, p *program.Program, args []string) int {
	return clitest.Of(func(p *program.Program) []*cobra.Command {
		return []*cobra.Command{
			NewCommands(p).LogsCommand(),
			NewCommands(p).ExecCommand(),
			NewCommands(p).AttachCommand(),
			NewCommands(p).DebugCommand(),
			NewCommands(p).PortForwardCommand(),
			NewCommands(p).CopyCommand(),
			run.NewCommands(p).RunCommand(),
		}
	})(ctx, p, args)
}

func newDaemon(t testing.TB, settings ...string) *clitest.Daemon {
	t.Helper()
	return clitest.New(t, commands, settings...)
}
