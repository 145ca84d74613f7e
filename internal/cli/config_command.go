package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/program"
)

func (p Commands) ConfigCommand() *cobra.Command {
	var output string
	var docs bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration and where each value comes from",
		Long: "Print the configuration that `monopod run` would have with the same files, environment and flags, as a\n" +
			"configuration file with a comment at each key that says where its value comes from.",
		Args: program.NoArgs,
	}
	flags := p.ConfigFlags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: yaml (default) or json")
	cmd.Flags().BoolVar(&docs, "docs", false, "print docs/config.md: the description of all keys")
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
