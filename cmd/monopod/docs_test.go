package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const docsMarker = "<!-- The rest is made from the program"

func TestDocsCLIDescribesEachCommandAndFlag(t *testing.T) {
	const file = "../../docs/cli.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), docsMarker)
	if !ok {
		t.Fatalf("%s has no %q", file, docsMarker)
	}
	line, _, _ := strings.Cut(rest, "\n")
	golden(t, file, head+docsMarker+line+"\n"+commandDocs())
}

func commandDocs() string {
	var b strings.Builder
	root := newProgram().root()
	fromConfig := map[string]bool{"config": true}
	for _, k := range configKeys() {
		fromConfig[k.flag()] = true
	}
	for _, cmd := range root.Commands() {
		if cmd.Hidden || cmd.Name() == "completion" || cmd.Name() == "help" {
			continue
		}
		fmt.Fprintf(&b, "\n## monopod %s\n\n%s.\n", cmd.Use, strings.TrimSuffix(cmd.Short, "."))
		if cmd.Long != "" {
			fmt.Fprintf(&b, "\n%s\n", cmd.Long)
		}
		describeFlags(&b, cmd, fromConfig)
	}
	return b.String()
}

func describeFlags(b *strings.Builder, cmd *cobra.Command, fromConfig map[string]bool) {
	var rows []string
	configured := cmd.Flags().Lookup("config") != nil
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if configured && fromConfig[f.Name] && f.Name != "config" || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		_, usage := pflag.UnquoteUsage(f)
		rows = append(rows, fmt.Sprintf("| %s | %s |\n", name, strings.ReplaceAll(usage, "|", "\\|")))
	})
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n| flag | |\n|---|---|\n%s", strings.Join(rows, ""))
	}
	if configured {
		b.WriteString("\nIt also has a flag for each key of the [configuration](config.md).\n")
	}
}

func TestEachCommandAndFlagHasAText(t *testing.T) {
	for _, cmd := range newProgram().root().Commands() {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q", cmd.Name(), cmd.Short)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no text", cmd.Name(), f.Name)
			}
		})
	}
}
