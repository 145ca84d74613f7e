package house

import (
	"bufio"
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheCoreSetNamesTests: each line of e2e/core.txt is a test that exists, once, with a reason, and so is each test that its comments name.
func TestTheCoreSetNamesTests(t *testing.T) {
	tests := map[string]bool{} // name: in package e2e
	eachFile(t, func(path string, _ *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(path, "_test.go") && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = tests[fn.Name.Name] || f.Name.Name == "e2e"
			}
		}
	})
	list, err := os.Open("../../e2e/core.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	seen, alone, name := map[string]bool{}, 0, regexp.MustCompile(`\bTest\w+`)
	for lines := bufio.NewScanner(list); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			for _, n := range name.FindAllString(line, -1) {
				if _, ok := tests[n]; !ok {
					t.Errorf("there is no test %s", n)
				}
			}
			continue
		}
		if line == "alone" {
			alone++
			continue
		}
		n, reason, ok := strings.Cut(line, ": ")
		n, _, _ = strings.Cut(n, "/")
		if !ok || len(strings.Fields(reason)) < 2 || !tests[n] || seen[n] {
			t.Errorf("line %q: want a test of e2e, once, with a reason", line)
		}
		seen[n] = true
	}
	if len(seen) < 40 || alone != 1 {
		t.Errorf("%d tests, %d times alone", len(seen), alone)
	}
}
