package check

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/daemontest/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// commands executes `monopod validate`.
func commands(ctx context.Context, p *clitest.Process, args []string) int {
	return clitest.Of(func(p *clitest.Process) []*cobra.Command {
		return []*cobra.Command{NewCommands(p.Program).ValidateCommand()}
	})(ctx, p, args)
}
