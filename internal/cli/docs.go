package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"monopod/docs"
	"monopod/internal/config"
	"monopod/internal/program"
)

// DocsCommand prints the pages of docs/, which are embedded in the program.
func (p Commands) DocsCommand() *cobra.Command {
	var man string
	cmd := &cobra.Command{
		Use:   "docs [TOPIC]",
		Short: "Print a page of the manual",
		Long: "Without TOPIC, lists the topics. Errors and help name topics as `monopod docs TOPIC`. With --man, writes the manual pages " +
			"monopod(1) and monopod.yaml(5) below DIR, for example /usr/local/share/man.",
		Example: "monopod docs\nmonopod docs why\nmonopod docs --man man",
		Args:    program.RangeArgs(0, 1),
	}
	cmd.Flags().StringVar(&man, "man", "", "write the manual pages below `DIR`")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case man != "":
			return writeMan(man)
		case len(args) == 0:
			return p.listTopics()
		}
		text, err := docs.Pages.ReadFile(args[0] + ".md")
		if err != nil {
			return program.Usagef("no topic %q%s; `monopod docs` lists them", args[0], program.AppendHint(config.DidYouMean(args[0], Topics())))
		}
		p.Out().Lines(string(text))
		return nil
	}
	return cmd
}

// Topics returns the names of the pages, sorted.
func Topics() []string {
	var all []string
	entries, _ := fs.ReadDir(docs.Pages, ".") // it is part of the program
	for _, e := range entries {
		all = append(all, strings.TrimSuffix(e.Name(), ".md"))
	}
	return all
}

func (p Commands) listTopics() error {
	for _, topic := range Topics() {
		text, err := docs.Pages.ReadFile(topic + ".md")
		if err != nil {
			return err
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		p.Out().Printf("%-14s %s\n", topic, title)
	}
	return nil
}

// writeMan writes the manual pages below dir, each into the directory of its section.
func writeMan(dir string) error {
	entries, err := fs.ReadDir(docs.Man, "man")
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := docs.Man.ReadFile("man/" + e.Name())
		if err != nil {
			return err
		}
		section := filepath.Join(dir, "man"+strings.TrimPrefix(filepath.Ext(e.Name()), "."))
		if err := os.MkdirAll(section, 0o755); err != nil {
			return fmt.Errorf("write the manual pages: %w", err)
		}
		if err := os.WriteFile(filepath.Join(section, e.Name()), text, 0o644); err != nil {
			return fmt.Errorf("write the manual pages: %w", err)
		}
	}
	return nil
}
