package reference

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monopod/internal/config"
	"monopod/internal/program"
)

// ManCommands returns the manual page monopod(1). It is written here: cobra/doc needs a Markdown parser for it.
func ManCommands(root *cobra.Command, groups []Group) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH MONOPOD 1 \"\" monopod \"User Commands\"\n.SH NAME\nmonopod \\- %s\n", roff(root.Short))
	b.WriteString(".SH SYNOPSIS\n.B monopod\n.I COMMAND\n[flags]\n")
	b.WriteString(".SH DESCRIPTION\nCommands by task:\n")
	for _, g := range groups {
		fmt.Fprintf(&b, ".TP\n.B %s\n", roff(g.Title))
		var names []string
		for _, r := range g.Rows {
			names = append(names, r.Commands)
		}
		b.WriteString(roff(strings.Join(names, ", ")) + "\n")
	}
	b.WriteString(".SH COMMANDS\n")
	for _, cmd := range documented(root) {
		manCommand(&b, cmd)
	}
	b.WriteString(".SH SEE ALSO\n.BR monopod.yaml (5);\n.B monopod docs\nlists the pages of the manual.\n")
	return b.String()
}

func manCommand(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, ".SS %s\n%s.\n", roff(strings.TrimSuffix(cmd.CommandPath(), cmd.Name())+cmd.Use), roff(cmd.Short))
	manText(b, cmd.Long)
	if examples := Examples(cmd); len(examples) > 0 {
		fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(strings.Join(examples, "\n")))
	}
	own := flags(cmd, func(f *pflag.Flag) bool { return !program.IsConfigKey(f) && f.Name != "help" && !f.Hidden })
	own.VisitAll(func(f *pflag.Flag) {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if d := defaultText(f); d != "" {
			usage += " (default " + strings.Trim(d, "`") + ")"
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR \\fI%s\\fR\n%s\n", roff(name), roff(value), roff(usage))
	})
	for _, sub := range visible(cmd) {
		manCommand(b, sub)
	}
}

// ManConfig returns the manual page monopod.yaml(5).
func ManConfig() string {
	var b strings.Builder
	b.WriteString(".TH MONOPOD.YAML 5 \"\" monopod \"File Formats\"\n.SH NAME\nmonopod.yaml \\- configuration of monopod\n.SH DESCRIPTION\n")
	b.WriteString("Without \\-\\-config or MONOPOD_CONFIG it is /etc/monopod/config.yaml, with the files of config.d beside it. " +
		"Each key is also an environment variable and a flag of the commands that read it.\n.SH KEYS\n")
	for _, k := range config.Keys() {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR (%s; default %s)\n%s\n", roff(k.Path), roff(string(k.Kind)), roff(k.Default()), roff(k.Doc()))
	}
	b.WriteString(".SH SEE ALSO\n.BR monopod (1)\n")
	return b.String()
}

// manText writes paragraphs.
func manText(b *strings.Builder, text string) {
	if text == "" {
		return
	}
	for p := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(p, " ") {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(p))
			continue
		}
		fmt.Fprintf(b, ".PP\n%s\n", roff(strings.Join(strings.Fields(p), " ")))
	}
}

var codeSpan = regexp.MustCompile("`([^`\n]*)`")

// roff escapes text for troff; what is in backticks becomes bold.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	text = codeSpan.ReplaceAllString(text, `\fB$1\fR`)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
