package lookup

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/run"
	"monopod/internal/signals"
)

func TestMain(m *testing.M) {
	signals.Adopt() // tests send them to what they start
	goleak.VerifyTestMain(m)
}

// commands executes `monopod run`; the commands that look something up are in other packages.
func commands(ctx context.Context, p *clitest.Process, args []string) int {
	return clitest.Of(func(p *clitest.Process) []*cobra.Command {
		return []*cobra.Command{run.NewCommands(p.Program, p.Machine).RunCommand()}
	})(ctx, p, args)
}
