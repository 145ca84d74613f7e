package house

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestPeopleSeeNothingThatIsNotEscaped: commands print through internal/printer, with constant formats. Exceptions are listed here with
// what they print.
func TestPeopleSeeNothingThatIsNotEscaped(t *testing.T) {
	raw := map[string]string{
		"Out": "the printer itself", "Errs": "the printer itself", "Raw": "the way out", "RawErr": "the way out", "RawJSON": "the way out for JSON",
		"PrintObject": "JSON and YAML, escaped by their encoders",
		"newCommands": "where they come from", "function": "nothing: it discards warnings",
		"Root":    "help, which is constant, and words of completion, which are plain",
		"logs":    "the log of a container, as kubectl",
		"copyOut": "an archive", "oneLog": "the log of a container behind an escaped prefix", "printItems": "jsonpath, whose strings are escaped", "streams": "the output of a process", "Command": "the output of the command of `up`",
		"pull": "JSON, or nothing but whether it is a terminal", "show": "bars, whose texts are printed by a printer", "top": "nothing but whether it is a terminal",
		"Progress": "lines, which are printed by a printer",
		"serve":    "slog, which quotes", "CommandLog": "slog, which quotes",
		"tellOnce": "JSON", "notUp": "JSON", "use": "JSON", "validate": "JSON", "printConfig": "JSON", "printVersion": "JSON",
	}
	ways := []string{"Stdout", "Stderr", "Raw", "RawErr", "RawJSON"}
	commands := []string{"cmd/monopod", "internal/program", "internal/cli", "internal/run", "internal/setup"}
	used := map[string]bool{}
	eachFile(t, func(file string, fset *token.FileSet, f *ast.File) {
		if strings.HasSuffix(file, "_test.go") || isTestSupport(path.Dir(file)) || within(path.Dir(file), []string{"fixture", "cmd/launcher", "internal/bundle"}) {
			return
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := fn.Name.Name
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					pkg, _ := n.X.(*ast.Ident)
					standard := pkg != nil && pkg.Name == "os" && (n.Sel.Name == "Stdout" || n.Sel.Name == "Stderr")
					toScreen := pkg != nil && pkg.Name == "fmt" && slices.Contains([]string{"Print", "Printf", "Println"}, n.Sel.Name)
					inner, _ := n.X.(*ast.SelectorExpr)
					program := pkg != nil && slices.Contains([]string{"p", "b", "quiet"}, pkg.Name) || inner != nil && slices.Contains([]string{"p", "program", "Program"}, inner.Sel.Name)
					ours := within(path.Dir(file), commands) && program && slices.Contains(ways, n.Sel.Name)
					if !standard && !toScreen && !ours {
						return true
					}
					used[name] = true
					if raw[name] == "" || !within(path.Dir(file), commands) {
						t.Errorf("%s: %s uses %s: print with p.out() or p.errs()", fset.Position(n.Pos()), name, n.Sel.Name)
					}
				case *ast.CallExpr:
					s, ok := n.Fun.(*ast.SelectorExpr)
					if ok && s.Sel.Name == "Printf" && name != "note" && len(n.Args) > 0 && !isConstant(n.Args[0]) {
						t.Errorf("%s: the format is no constant: what it holds is not escaped", fset.Position(n.Pos()))
					}
				}
				return true
			})
		}
	})
	for name := range raw {
		if !used[name] {
			t.Errorf("%s prints nothing raw any more: remove it from the list", name)
		}
	}
}

// isConstant reports whether an expression consists of string literals.
func isConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isConstant(e.X) && isConstant(e.Y)
	}
	return false
}
