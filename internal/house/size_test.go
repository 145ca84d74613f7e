package house

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"monopod/internal/version"
)

const (
	// maxPackage is the maximum number of code lines of a package; above smallPackage a package must be in largePackages.
	maxPackage, smallPackage = 3000, 1500
	maxFunction              = 80
	maxMethods               = 30
	// maxFields is the maximum number of fields of a struct of the daemon.
	maxFields = 20
)

// testSupport lists packages that exist for tests, whose code is not product code. A trailing slash means a directory.
func testSupport() []string {
	return []string{
		"e2e/", "examples/", "internal/atomicfile/damagetest", "internal/daemontest/", "internal/house", "internal/loopback",
		"internal/testfiles", "manifests/manifesttest", "manifests/spaces/spacestest", "manifests/validate/validatetest", "node/apiserver/apitest", "runner/ctrd/dirtest", "runner/ctrd/embed/embedtest",
		"runner/ctrd/image/registrytest", "runner/runtimetest", "runner/spec/spectest",
		"watcher/watchertest",
	}
}

func isTestSupport(dir string) bool {
	return slices.ContainsFunc(testSupport(), func(s string) bool {
		return dir == strings.TrimSuffix(s, "/") || strings.HasSuffix(s, "/") && strings.HasPrefix(dir, s)
	})
}

// eachProductFile calls do for each file of the module that is neither a test nor test support.
func eachProductFile(t *testing.T, do func(path string, files *token.FileSet, f *ast.File)) {
	t.Helper()
	eachFile(t, func(file string, files *token.FileSet, f *ast.File) {
		if !strings.HasSuffix(file, "_test.go") && !isTestSupport(path.Dir(file)) && !ast.IsGenerated(f) {
			do(file, files, f)
		}
	})
}

// codeLines counts the lines of a file, without comments and blank lines.
func codeLines(t *testing.T, file string) int {
	t.Helper()
	src, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	f := token.NewFileSet().AddFile(file, -1, len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, 0)
	n, last := 0, 0
	for {
		pos, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return n
		case tok == token.SEMICOLON && text == "\n":
			continue
		}
		first := f.Line(pos)
		end := first + strings.Count(text, "\n")
		n += end - max(first, last+1) + 1
		last = max(last, end)
	}
}

// tooLarge compares measures with a limit and a list of exceptions, which may only shrink.
func tooLarge(t *testing.T, what string, limit int, have, exceptions map[string]int) {
	t.Helper()
	for name, n := range have {
		most, listed := exceptions[name]
		switch {
		case listed && n > most:
			t.Errorf("%s has %d %s, and %d when it was listed: it may only shrink", name, n, what, most)
		case !listed && n > limit:
			t.Errorf("%s has %d %s, more than %d: split it", name, n, what, limit)
		}
	}
	for name, most := range exceptions {
		if n := have[name]; n <= limit {
			t.Errorf("%s has %d %s, no more than %d: take it off the list, where it has %d", name, n, what, limit, most)
		}
	}
}

func TestPackagesAreSmall(t *testing.T) {
	lines := map[string]int{}
	eachProductFile(t, func(file string, _ *token.FileSet, _ *ast.File) { lines[path.Dir(file)] += codeLines(t, file) })
	tooLarge(t, "lines of code", smallPackage, lines, largePackages())
	for name, n := range lines {
		if _, pending := oversizedPackages()[name]; n > maxPackage && !pending {
			t.Errorf("%s has %d lines of code, more than %d: split it", name, n, maxPackage)
		}
	}
	for name := range oversizedPackages() {
		if lines[name] <= maxPackage {
			t.Errorf("%s has %d lines of code: take it off the list of oversized packages", name, lines[name])
		}
	}
}

func TestFunctionsAreShort(t *testing.T) {
	eachProductFile(t, func(_ string, files *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if n := files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1; n > maxFunction {
					t.Errorf("%s: %s has %d lines, more than %d", files.Position(fn.Pos()), fn.Name.Name, n, maxFunction)
				}
			}
		}
	})
}

func TestTypesHaveFewMethods(t *testing.T) {
	methods := map[string]int{}
	eachProductFile(t, func(file string, _ *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[path.Dir(file)+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	})
	tooLarge(t, "methods", maxMethods, methods, manyMethods())
}

// A struct of the daemon with more fields has more than one responsibility: compose it of parts.
func TestStructsOfTheDaemonHaveFewFields(t *testing.T) {
	eachProductFile(t, func(file string, files *token.FileSet, f *ast.File) {
		if dir := path.Dir(file); dir != "internal/run" && dir != "internal/daemon" && !strings.HasPrefix(dir, "internal/daemon/") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			fields := 0
			for _, field := range s.Fields.List {
				fields += max(1, len(field.Names))
			}
			if fields > maxFields {
				t.Errorf("%s: a struct with %d fields, more than %d", files.Position(s.Pos()), fields, maxFields)
			}
			return true
		})
	})
}

// receiver returns the type name of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestProductCodeImportsNoTestSupport(t *testing.T) {
	unused := map[string]bool{}
	for _, name := range testSupport() {
		unused[strings.TrimSuffix(name, "/")] = true
	}
	for _, p := range packages(t) {
		dir := strings.TrimPrefix(p.ImportPath, version.Module+"/")
		for name := range unused {
			if dir == name || strings.HasPrefix(dir, name+"/") {
				delete(unused, name)
			}
		}
		if isTestSupport(dir) {
			continue
		}
		for _, to := range p.Imports {
			if to, ours := strings.CutPrefix(to, version.Module+"/"); ours && isTestSupport(to) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, to)
			}
		}
	}
	for name := range unused {
		t.Errorf("there is no package %s: take it off the list of test support", name)
	}
}
