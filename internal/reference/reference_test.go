package reference

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
