package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"monopod/internal/program"
	"monopod/internal/version"
)

func (p Commands) VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  program.NoArgs,
		Run: func(*cobra.Command, []string) {
			p.Out().Printf("monopod %s %s %s/%s\n", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}
