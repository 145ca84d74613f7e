package house

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTestsThatTheFieldNotesNameExist: the list of cases from other test suites names existing tests. Each case has a test or a reason
// for having none, and cases from end-to-end suites have a test with real containers.
func TestTestsThatTheFieldNotesNameExist(t *testing.T) {
	tests, containers := map[string]bool{}, map[string]bool{}
	eachFile(t, func(file string, _ *token.FileSet, f *ast.File) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				name := path.Dir(file) + "." + fn.Name.Name
				tests[name] = true
				containers[name] = strings.HasPrefix(file, "e2e/") || strings.HasPrefix(file, "runner/ctrd/") && strings.HasSuffix(file, "_e2e_test.go")
			}
		}
	})
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "field-notes.md"))
	if err != nil {
		t.Fatal(err)
	}
	name, id := regexp.MustCompile("`([a-z0-9/]+\\.Test\\w+)`"), regexp.MustCompile(`^(0\.\d+|[ABF]\d+|Test\w+)[ :]`)
	cases := map[string]int{}
	for item := range strings.SplitSeq(string(text), "\n- ") {
		named := name.FindAllStringSubmatch(item, -1)
		for _, m := range named {
			if !tests[m[1]] {
				t.Errorf("docs/field-notes.md: there is no test %s", m[1])
			}
		}
		if m := id.FindStringSubmatch(item); m != nil {
			cases[m[1][:1]]++
			if len(named) == 0 && !strings.Contains(item, "Not: ") {
				t.Errorf("docs/field-notes.md: case %s has neither a test nor a reason", m[1])
			}
			if strings.Contains("ABF", m[1][:1]) && !slices.ContainsFunc(named, func(m []string) bool { return containers[m[1]] }) {
				t.Errorf("docs/field-notes.md: case %s has no test with real containers", m[1])
			}
		}
	}
	for group, want := range map[string]int{"0": 10, "A": 7, "B": 13, "F": 6, "T": 11} {
		if cases[group] != want {
			t.Errorf("docs/field-notes.md: %d cases of group %s, want %d", cases[group], group, want)
		}
	}
}
