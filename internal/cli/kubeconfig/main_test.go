package kubeconfig

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execute executes a command line of this package.
func execute(ctx context.Context, p *program.Program, args []string) int {
	return clitest.Of(func(p *program.Program) []*cobra.Command {
		return []*cobra.Command{NewCommands(p).KubeconfigCommand()}
	})(ctx, p, args)
}
