// Package reference prints the command tree: help on a terminal, docs/cli.md and the manual pages.
//
// It must not know any command. It starts no goroutines.
package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/internal/program"
	"monopod/internal/wrap"
)

// Width is the number of columns of help.
const Width = 100

// Group is a task of users, with the commands for it.
type Group struct {
	Title string
	Rows  []Row
}

// Row is a line of `monopod help`: one command or several that belong together, as "once, down".
type Row struct {
	Commands string
	// Text is empty for a single command: then it is the short text of that.
	Text string
}

// SetHelp has the tree print its help: the root by groups, each command on one screen.
func SetHelp(root *cobra.Command, groups []Group) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := ""
		switch {
		case cmd == root:
			text = overview(root, groups)
		case cmd.Flags().Changed(program.HelpConfig):
			text = configHelp(cmd)
		default:
			text = commandHelp(cmd)
		}
		_, _ = io.WriteString(cmd.OutOrStdout(), text)
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), commandHelp(cmd))
		return err
	})
}

// overview lists the commands by task.
func overview(root *cobra.Command, groups []Group) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\n", root.Short)
	for _, g := range groups {
		fmt.Fprintf(&b, "%s\n", g.Title)
		for _, r := range g.Rows {
			text := r.Text
			if text == "" {
				text = short(root, r.Commands)
			}
			fmt.Fprintf(&b, "  %-25s %s\n", r.Commands, text)
		}
	}
	fmt.Fprintf(&b, "\n`%[1]s COMMAND --help` explains a command, `%[1]s docs` lists the pages of the manual.\n", root.Name())
	return b.String()
}

func short(root *cobra.Command, name string) string {
	for _, cmd := range root.Commands() {
		if cmd.Name() == name {
			return cmd.Short
		}
	}
	return ""
}

// commandHelp is what --help prints.
func commandHelp(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", cmd.Short)
	if cmd.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", reflow(cmd.Long, Width))
	}
	fmt.Fprintf(&b, "\nUsage: %s\n", cmd.UseLine())
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "Alias: %s\n", strings.Join(cmd.Aliases, ", "))
	}
	if examples := Examples(cmd); len(examples) > 0 {
		b.WriteString("\nExamples:\n")
		for _, e := range examples {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}
	if subs := visible(cmd); len(subs) > 0 {
		b.WriteString("\nCommands:\n")
		for _, sub := range subs {
			fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
		}
	}
	own := flags(cmd, func(f *pflag.Flag) bool { return !program.IsConfigKey(f) && f.Name != "help" && !f.Hidden })
	if own.HasFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", own.FlagUsagesWrapped(Width))
	}
	return b.String()
}

// configHelp is what --help-config prints.
func configHelp(cmd *cobra.Command) string {
	keys := flags(cmd, program.IsConfigKey)
	return "Flags of configuration keys; `monopod docs config` describes them all.\n\n" + keyUsages(keys)
}

// keyUsages describes each flag below its name: the texts are too long for a column.
func keyUsages(keys *pflag.FlagSet) string {
	var b strings.Builder
	keys.VisitAll(func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  --%s %s (default %s)\n", f.Name, name, strings.ReplaceAll(f.DefValue, "`", "'"))
		for line := range strings.Lines(reflow(usage, Width-8) + "\n") {
			b.WriteString("        " + line)
		}
	})
	return b.String()
}

// flags are those of the command itself that are kept.
func flags(cmd *cobra.Command, keep func(*pflag.Flag) bool) *pflag.FlagSet {
	set := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if keep(f) {
			set.AddFlag(f)
		}
	})
	return set
}

// Examples are the command lines of the examples of a command.
func Examples(cmd *cobra.Command) []string {
	var all []string
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

func visible(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			all = append(all, sub)
		}
	}
	return all
}

// reflow breaks paragraphs into lines of at most width columns. Lines that are indented stay as they are.
func reflow(text string, width int) string {
	var out []string
	for p := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(p, " ") {
			out = append(out, strings.TrimRight(p, "\n"))
			continue
		}
		out = append(out, wrap.Text(p, width, ""))
	}
	return strings.Join(out, "\n\n")
}
