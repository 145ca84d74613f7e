package check

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// commands executes `monopod validate`.
func commands(ctx context.Context, p *program.Program, args []string) int {
	return clitest.Of(func(p *program.Program) []*cobra.Command {
		return []*cobra.Command{NewCommands(p).ValidateCommand()}
	})(ctx, p, args)
}
