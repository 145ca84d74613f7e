package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monopod/internal/program"
	"monopod/internal/version"
)

// runAlone executes a command of this package.
func runAlone(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	p := &program.Program{Stdout: &out, Stderr: &out}
	c := NewCommands(p)
	cmd := c.DocsCommand()
	if name == "version" {
		cmd = c.VersionCommand()
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestDocsListsTopicsAndPrintsPages(t *testing.T) {
	t.Parallel()
	list, err := runAlone(t, "docs", []string{}...)
	if err != nil || strings.Count(list, "\n") != len(Topics()) || !strings.Contains(list, "why            Why a pod does not run\n") {
		t.Errorf("%v\n%s", err, list)
	}
	for _, topic := range Topics() {
		page, err := runAlone(t, "docs", topic)
		if err != nil || !strings.HasPrefix(page, "# ") {
			t.Errorf("%s: %v: %.60s", topic, err, page)
		}
	}
	if _, err := runAlone(t, "docs", "wyh"); err == nil || !strings.Contains(err.Error(), `no topic "wyh"; did you mean why?`) {
		t.Errorf("unknown topic: %v", err)
	}
}

func TestDocsWritesManualPagesBySection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := runAlone(t, "docs", "--man", dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"man1/monopod.1", "man5/monopod.yaml.5"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(string(text), ".TH MONOPOD") {
			t.Errorf("%s: %v: %.40s", name, err, text)
		}
	}
	if _, err := runAlone(t, "docs", "--man", "/proc/none"); err == nil {
		t.Error("written to /proc")
	}
}

func TestVersionAsJSONHasAllVersions(t *testing.T) {
	t.Parallel()
	text, err := runAlone(t, "version", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"version", "commit", "go", "containerd", "runc", "platform"} {
		if !strings.Contains(text, `"`+key+`": "`) {
			t.Errorf("no %s in %s", key, text)
		}
	}
	plain, err := runAlone(t, "version", []string{}...)
	if err != nil || !slices.Contains(strings.Fields(plain), version.String()) {
		t.Errorf("%v: %s", err, plain)
	}
	if _, err := runAlone(t, "version", "-o", "yaml"); err == nil {
		t.Error("-o yaml is accepted")
	}
}
