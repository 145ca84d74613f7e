package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sleepers lists test functions that may sleep outside of a polling loop, with the reason.
func sleepers() map[string]string {
	const bubble = "it is called in bubbles of synctest, where time costs nothing"
	const moment = "it does something at any moment, and waits for nothing"
	return map[string]string{
		"runner/pool/pool_test.go settle":                                          bubble,
		"internal/daemon/kubeview/harness_test.go settle":                          bubble,
		"internal/daemon/nodeevents/oom_test.go":                                   bubble,
		"internal/daemon/kubeview/view_test.go":                                    bubble,
		"internal/daemon/kubeview/workloadview_test.go":                            bubble,
		"runner/pool/pool_test.go pass":                                            bubble,
		"node/pressure/monitor_test.go pass":                                       bubble,
		"runner/probe/watch_test.go pass":                                          bubble,
		"watcher/file/file_test.go unseen":                                         bubble,
		"runner/ctrd/image/registry/watchdog_test.go":                              bubble,
		"runner/ctrd/agent_e2e_test.go":                                            moment,
		"runner/ctrd/logs/crash_test.go killUnderLoad":                             moment,
		"e2e/chaos_test.go":                                                        moment,
		"e2e/idle_test.go letTimePass":                                             "what happens by itself in that time is measured",
		"e2e/powercut_test.go":                                                     moment,
		"e2e/soak_test.go":                                                         moment,
		"e2e/apply_test.go":                                                        moment,
		"e2e/stubborn_test.go":                                                     moment,
		"e2e/rollout_test.go TestAnUpdateThatIsKilledAtAnyMomentEndsInOneRevision": moment,
		"runner/ctrd/image/preload/preload_e2e_test.go":                            "the pace of what it does",
		"cmd/monopod/bench_test.go BenchmarkScaleIdle":                             "a benchmark: the time is what is measured",
		"runner/probe/bench_test.go aThousandASecond":                              "a benchmark: the time is what is measured",
		"cmd/monopod/bench_test.go measureResident":                                "a benchmark: what a process does by itself in that time is measured",
	}
}

// module contains the Go files of the module, parsed once for all tests.
type module struct {
	paths []string
	files []*ast.File
	set   *token.FileSet
}

var parsed = sync.OnceValues(func() (module, error) {
	top, m := "../..", module{set: token.NewFileSet()}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(m.set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		m.paths, m.files = append(m.paths, filepath.ToSlash(rel)), append(m.files, f)
		return err
	})
	return m, err
})

// eachFile calls do for each Go file of the module, with its path below the root.
func eachFile(t *testing.T, do func(path string, files *token.FileSet, f *ast.File)) {
	t.Helper()
	m, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range m.files {
		do(m.paths[i], m.set, f)
	}
}

// isCall reports whether a node calls pkg.name.
func isCall(n ast.Node, pkg string, names ...string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, s.Sel.Name) {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return pkg == "" || ok && x.Name == pkg
}

// TestTestsDoNotSleepToWait: a test that waits polls until a deadline, or runs in a synctest bubble.
func TestTestsDoNotSleepToWait(t *testing.T) {
	unused := sleepers()
	eachFile(t, func(path string, files *token.FileSet, f *ast.File) {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "runner/runtimetest/") {
			return
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, at := range sleeps(fn) {
				excused := false
				for _, name := range []string{path, path + " " + fn.Name.Name} {
					if _, ok := sleepers()[name]; ok {
						delete(unused, name)
						excused = true
					}
				}
				if !excused {
					t.Errorf("%s: %s sleeps: look for what it waits for, with a deadline, or use synctest", files.Position(at), fn.Name.Name)
				}
			}
		}
	})
	for name := range unused {
		t.Errorf("%s does not sleep any more: take it out of the list", name)
	}
}

// sleeps returns where a function sleeps outside of bubbles and loops with a deadline.
func sleeps(fn *ast.FuncDecl) []token.Pos {
	var found []token.Pos
	var walk func(n ast.Node) bool
	walk = func(n ast.Node) bool {
		loop, isLoop := n.(*ast.ForStmt)
		if clause, ok := n.(*ast.CommClause); ok { // a limit beside something else
			for _, s := range clause.Body {
				ast.Inspect(s, walk)
			}
			return false
		}
		switch {
		case isCall(n, "synctest", "Test"):
			return false
		case isLoop && mentionsTime(loop):
			return false
		case isCall(n, "time", "Sleep"):
			found = append(found, n.Pos())
		case isReceive(n):
			found = append(found, n.Pos())
		}
		return true
	}
	ast.Inspect(fn, walk)
	return found
}

// mentionsTime reports whether a loop reads the clock, and so has a deadline.
func mentionsTime(loop *ast.ForStmt) bool {
	looks := false
	ast.Inspect(loop, func(n ast.Node) bool {
		looks = looks || isCall(n, "time", "Now", "Since", "Until") || isCall(n, "", "After", "Before")
		return !looks
	})
	return looks
}

// isReceive reports whether a statement is just `<-time.After(d)`, which is another way to sleep.
func isReceive(n ast.Node) bool {
	s, ok := n.(*ast.ExprStmt)
	if !ok {
		return false
	}
	u, ok := s.X.(*ast.UnaryExpr)
	return ok && u.Op == token.ARROW && isCall(u.X, "time", "After")
}

// TestPackagesThatStartGoroutinesLookForLeaks: their tests check with goleak; if a package has no tests, those of packages that use it do.
func TestPackagesThatStartGoroutinesLookForLeaks(t *testing.T) {
	starts, looks, tested := map[string]string{}, map[string]bool{}, map[string]bool{}
	eachFile(t, func(path string, files *token.FileSet, f *ast.File) {
		dir := filepath.Dir(path)
		if strings.HasSuffix(path, "_test.go") {
			tested[dir] = true
			ast.Inspect(f, func(n ast.Node) bool {
				looks[dir] = looks[dir] || isCall(n, "goleak", "VerifyTestMain", "Find")
				return true
			})
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok || isCall(n, "", "Go", "AfterFunc") {
				starts[dir] = fmt.Sprint(files.Position(n.Pos()))
			}
			return true
		})
	})
	for dir, where := range starts {
		if strings.HasPrefix(dir, "e2e/") || strings.HasPrefix(dir, "examples/") || dir == "internal/daemontest" || dir == "internal/daemontest/clitest" { // test support, whose users look
			continue
		}
		if !tested[dir] {
			dir = filepath.Dir(dir) // it is tested from there
		}
		if !looks[dir] {
			t.Errorf("%s starts a goroutine (%s), but no test of it looks for leaks: add goleak.VerifyTestMain", dir, where)
		}
	}
	if len(starts) < 8 {
		t.Errorf("goroutines are started in %d packages only: %v", len(starts), starts)
	}
}
