package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/program"
)

// ConfigCommand returns `monopod config`.
func (p Commands) ConfigCommand() *cobra.Command {
	var output string
	var docs bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration",
		Long: "Prints the configuration that `monopod run` would use with the same files, environment and flags: a configuration file with a comment on each key that " +
			"names the origin of its value.",
		Example: "monopod config\nmonopod config -o json\nmonopod config --pod-cidr=10.20.0.0/24",
		Args:    program.NoArgs,
	}
	flags := p.ConfigFlags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: yaml (default) or json")
	cmd.Flags().BoolVar(&docs, "docs", false, "describe all keys, like 'monopod docs config'")
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := program.OneOfOutputs(output, "yaml", "json"); err != nil {
			return err
		}
		if docs {
			p.Out().Lines(config.Docs())
			return nil
		}
		cfg, err := config.Load(flags, p.Env)
		if err != nil {
			return err
		}
		wrong, later := cfg.ProviderFaults()
		for _, w := range slices.Concat(cfg.Warnings, later) {
			p.Errs().Println("warning:", w)
		}
		if len(wrong) > 0 {
			return wrong
		}
		return p.printConfig(cfg, output)
	}
	return cmd
}

func (p Commands) printConfig(cfg *config.Loaded, output string) error {
	if output == "json" {
		b, err := cfg.JSON()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.RawJSON(), "%s\n", b)
		return err
	}
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	p.Out().Lines(text)
	return nil
}
