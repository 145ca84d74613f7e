package reference

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/internal/program"
)

// markdownWidth is the number of columns of lines of text in docs/cli.md.
const markdownWidth = 140

// Markdown returns the part of docs/cli.md that describes the commands.
func Markdown(root *cobra.Command) string {
	var b strings.Builder
	for _, cmd := range documented(root) {
		markdownCommand(&b, cmd)
	}
	return b.String()
}

// documented are the commands that have a description: cobra's own have not.
func documented(root *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, cmd := range visible(root) {
		if cmd.Name() != "completion" && cmd.Name() != "help" {
			all = append(all, cmd)
		}
	}
	return all
}

// markdownCommand describes a command, then those below it.
func markdownCommand(b *strings.Builder, cmd *cobra.Command) {
	path := strings.TrimSuffix(cmd.CommandPath(), cmd.Name()) + cmd.Use
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", path, cmd.Short)
	if cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", reflow(cmd.Long, markdownWidth))
	}
	if examples := Examples(cmd); len(examples) > 0 {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.Join(examples, "\n"))
	}
	markdownFlags(b, cmd)
	for _, sub := range visible(cmd) {
		markdownCommand(b, sub)
	}
}

// markdownFlags lists the flags of a command. Those of configuration keys are in docs/config.md.
func markdownFlags(b *strings.Builder, cmd *cobra.Command) {
	own := flags(cmd, func(f *pflag.Flag) bool { return !program.IsConfigKey(f) && f.Name != "help" && !f.Hidden })
	if !own.HasFlags() {
		return
	}
	b.WriteString("\n| flag | default | |\n|---|---|---|\n")
	own.VisitAll(func(f *pflag.Flag) {
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, defaultText(f), strings.ReplaceAll(usage, "|", "\\|"))
	})
}

// defaultText is the default of a flag, or empty if it is the zero value.
func defaultText(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
		return ""
	}
	return "`" + f.DefValue + "`"
}
