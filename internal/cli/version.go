package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"monopod/internal/program"
	"monopod/internal/version"
)

// VersionCommand prints the version and build.
func (p Commands) VersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: "`-o json` also has the commit, and the versions of Go, of the containerd inside monopod and of the runc in the bundle. " +
			"A plain build uses the runc of the system.",
		Example: "monopod version\nmonopod version -o json",
		Args:    program.NoArgs,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: json")
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := program.OneOfOutputs(output, "json"); err != nil {
			return err
		}
		return p.printVersion(version.Get(), output)
	}
	return cmd
}

func (p Commands) printVersion(v version.Info, output string) error {
	if output == "json" {
		e := json.NewEncoder(p.RawJSON())
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	p.Out().Printf("monopod %s %s %s\n", v.Version, v.Go, v.Platform)
	return nil
}
