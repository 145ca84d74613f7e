package reference

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"monopod/internal/program"
)

func tree() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Do things"}
	cmd := &cobra.Command{
		Use: "walk PLACE", Short: "Walk to a place", Example: "tool walk home\ntool walk -f 'a b'",
		Long: "One " + strings.Repeat("word ", 40) + "end.\n\n    a table   stays\n    as it is", Run: func(*cobra.Command, []string) {},
	}
	cmd.Flags().BoolP("fast", "f", false, "run `a|b` instead")
	cmd.Flags().Int("steps", 3, "number of steps")
	root.AddCommand(cmd)
	return root
}

func printed(root *cobra.Command, args ...string) string {
	var b strings.Builder
	root.SetOut(&b)
	root.SetArgs(args)
	SetHelp(root, []Group{{Title: "Move", Rows: []Row{{Commands: "walk"}, {Commands: "run, jump", Text: "Other ways"}}}})
	_ = root.Execute()
	return b.String()
}

func TestHelpOfTheRootListsGroups(t *testing.T) {
	t.Parallel()
	want := "Do things.\n\nMove\n  walk                      Walk to a place\n  run, jump                 Other ways\n\n`tool COMMAND --help` explains a command"
	if got := printed(tree(), "--help"); !strings.HasPrefix(got, want) {
		t.Errorf("%s", got)
	}
}

func TestHelpOfACommandIsBrokenIntoLines(t *testing.T) {
	t.Parallel()
	got := printed(tree(), "walk", "--help")
	for l := range strings.Lines(got) {
		if len(l) > Width+1 {
			t.Errorf("long line: %s", l)
		}
	}
	for _, want := range []string{"Walk to a place.\n\nOne word", "    a table   stays\n    as it is\n", "\nUsage: tool walk PLACE", "Examples:\n  tool walk home\n", "(default 3)"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestMarkdownDescribesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	got := Markdown(tree())
	for _, want := range []string{"\n## tool walk PLACE\n\nWalk to a place.\n", "```sh\ntool walk home\ntool walk -f 'a b'\n```", "| `-f`, `--fast` |  | run a\\|b instead |", "| `--steps` | `3` | number of steps |"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestManualPageEscapesWhatTroffActsOn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		".TH": `\&.TH`, "'a": `\&'a`, `a\b`: `a\eb`, "see `monopod why`": `see \fBmonopod why\fR`, "--all": `\-\-all`, "a\n.b": "a\n" + `\&.b`,
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := ManCommands(tree(), nil); !strings.Contains(got, ".SS tool walk PLACE\nWalk to a place.\n") || !strings.Contains(got, `\fB\-\-steps\fR`) {
		t.Errorf("%s", got)
	}
	if got := ManConfig(); !strings.Contains(got, `\fBmaxPods\fR (integer; default \fB`) {
		t.Errorf("%s", got[:2000])
	}
}

// large is a tree with everything that pages have to show, and what they must not.
func large() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := tree()
	image := &cobra.Command{Use: "image", Aliases: []string{"img", "images"}, Short: "Show `images`"}
	image.AddCommand(&cobra.Command{Use: "rm NAME", Short: "Remove one", Long: "First\nparagraph.\n\n.second -x 'y'", Run: run}, &cobra.Command{Use: "secret", Hidden: true, Short: "Not shown", Run: run})
	image.PersistentFlags().String("store", "", "`directory` of all")
	root.AddCommand(image, &cobra.Command{Use: "internal", Hidden: true, Short: "Not shown", Run: run}, &cobra.Command{Use: "completion", Short: "Of cobra", Run: run})
	walk, _, _ := root.Find([]string{"walk"})
	walk.Flags().Bool("trap", false, "not shown")
	walk.Flags().Duration("rest", 0, "pause")
	walk.Flags().StringSlice("via", nil, "`place` in between")
	walk.Flags().String("shoes", "boots", "kind")
	walk.Flags().Lookup("trap").Hidden = true
	return root
}

func TestHelpOfACommandWithCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, want string }{
		{"image", "Show `images`.\n\nUsage: tool image [flags]\nAlias: img, images\n\nCommands:\n  rm           Remove one\n\nFlags:\n      --store directory   directory of all\n"},
		{"img", "Show `images`.\n\nUsage: tool image [flags]\nAlias: img, images\n\nCommands:\n  rm           Remove one\n\nFlags:\n      --store directory   directory of all\n"},
		{"image rm", "Remove one.\n\nFirst paragraph.\n\n.second -x 'y'\n\nUsage: tool image rm NAME [flags]\n"},
	} {
		if got := printed(large(), append(strings.Fields(tt.args), "--help")...); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.args, got, tt.want)
		}
	}
}

func TestUsageIsTheHelp(t *testing.T) {
	t.Parallel()
	root := large()
	help := printed(root, "walk", "--help")
	walk, _, _ := root.Find([]string{"walk"})
	if got := walk.UsageString(); got != help || !strings.HasPrefix(got, "Walk to a place.\n") {
		t.Error(got)
	}
}

func TestHiddenCommandsAndFlagsAreInNoPage(t *testing.T) {
	t.Parallel()
	groups := []Group{{Title: "Move", Rows: []Row{{Commands: "walk"}, {Commands: "none"}}}}
	for name, page := range map[string]string{
		"help": printed(large(), "--help"), "help of a command": printed(large(), "walk", "--help"), "Markdown": Markdown(large()), "manual page": ManCommands(large(), groups),
	} {
		for _, hidden := range []string{"Not shown", "not shown", "secret", "trap", "Of cobra", "--help "} {
			if strings.Contains(page, hidden) {
				t.Errorf("%s has %q:\n%s", name, hidden, page)
			}
		}
	}
}

func TestMarkdownOfFlagsAndSubcommands(t *testing.T) {
	t.Parallel()
	got := Markdown(large())
	for _, want := range []string{
		"\n## tool image\n\nShow `images`.\n\n| flag | default | |\n|---|---|---|\n| `--store` |  | directory of all |\n",
		"\n## tool image rm NAME\n\nRemove one.\n\nFirst paragraph.\n\n.second -x 'y'\n",
		"| `--rest` |  | pause |\n", "| `--via` |  | place in between |\n", "| `--shoes` | `boots` | kind |\n", "\n\n    a table   stays\n    as it is\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestManualPageOfCommands(t *testing.T) {
	t.Parallel()
	got := ManCommands(large(), []Group{{Title: "Look-up", Rows: []Row{{Commands: "image"}, {Commands: "run, jump", Text: "x"}}}})
	for _, want := range []string{
		".TH MONOPOD 1 ", "monopod \\- Do things\n", ".TP\n.B Look\\-up\nimage, run, jump\n", ".SS tool image\nShow \\fBimages\\fR.\n",
		".SS tool image rm NAME\nRemove one.\n.PP\nFirst paragraph.\n.PP\n\\&.second \\-x 'y'\n",
		".TP\n\\fB\\-f, \\-\\-fast\\fR \\fIa|b\\fR\n", ".TP\n\\fB\\-\\-shoes\\fR \\fIstring\\fR\nkind (default boots)\n", ".TP\n\\fB\\-\\-rest\\fR \\fIduration\\fR\npause\n",
		".PP\n.nf\n    a table   stays\n    as it is\n.fi\n", ".nf\ntool walk home\ntool walk \\-f 'a b'\n.fi\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// The flags of configuration keys are too many for the help of a command: they have a page of their own.
func TestHelpOfConfigurationKeys(t *testing.T) {
	t.Parallel()
	root := tree()
	walk, _, _ := root.Find([]string{"walk"})
	(&program.Program{}).ConfigFlags(walk)
	help := printed(root, "walk", "--help")
	if strings.Contains(help, "--max-pods") || !strings.Contains(help, "--config file") || !strings.Contains(help, "--"+program.HelpConfig) {
		t.Error(help)
	}
	root = tree()
	walk, _, _ = root.Find([]string{"walk"})
	(&program.Program{}).ConfigFlags(walk)
	keys := printed(root, "walk", "--"+program.HelpConfig)
	if !strings.HasPrefix(keys, "Flags of configuration keys; ") || !strings.Contains(keys, "\n  --max-pods integer (default '110')\n        ") || strings.Contains(keys, "--steps") || strings.Contains(keys, "--config ") {
		t.Error(keys)
	}
	for line := range strings.Lines(keys) {
		if len(line) > Width+1 && !strings.HasPrefix(line, "  --") {
			t.Errorf("long line: %s", line)
		}
	}
	if page := Markdown(root) + ManCommands(root, nil); strings.Contains(page, "max-pods") || strings.Contains(page, `max\-pods`) {
		t.Error("pages of commands have flags of configuration keys")
	}
}

func TestExamplesAreCommandLines(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{Example: "\n  tool a\n\n\ttool b | jq .\n"}
	if got := strings.Join(Examples(cmd), ";"); got != "tool a;tool b | jq ." {
		t.Error(got)
	}
}
