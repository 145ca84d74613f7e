package kubeconfig

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"monopod/internal/daemontest/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execute executes a command line of this package.
func execute(ctx context.Context, p *clitest.Process, args []string) int {
	return clitest.Of(func(p *clitest.Process) []*cobra.Command {
		return []*cobra.Command{NewCommands(p.Program).KubeconfigCommand()}
	})(ctx, p, args)
}
