package house

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMakeGenerateRewritesAllThatTestsCompareWith also keeps packages without the flag -update out of the list, because they would make it
// fail.
func TestMakeGenerateRewritesAllThatTestsCompareWith(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	recipe := regexp.MustCompile(`(?m)^generate:\n\t\$\(GO\) test (.*) -update$`).FindSubmatch(makefile)
	if recipe == nil {
		t.Fatal("make generate is not as it was")
	}
	packages := map[string]bool{}
	eachFile(t, func(file string, _ *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if isCall(n, "testfiles", "Compare", "Update") && path.Dir(file) != "internal/daemontest/clitest" || isCall(n, "", "Golden") {
				packages["./"+path.Dir(file)] = true
			}
			if !isCall(n, "flag", "Bool") || path.Dir(file) == "internal/testfiles" {
				return true
			}
			if name, ok := n.(*ast.CallExpr).Args[0].(*ast.BasicLit); ok && name.Value == `"update"` {
				packages["./"+path.Dir(file)] = true
			}
			return true
		})
	})
	if got, want := strings.Fields(string(recipe[1])), slices.Sorted(maps.Keys(packages)); !slices.Equal(got, want) {
		t.Errorf("it is for %v, -update is a flag of %v", got, want)
	}
}
