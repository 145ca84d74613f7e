package house

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// TestQuantitiesAreDecodedInBoundedTime: what comes from manifests and clients is decoded by internal/quantity.
func TestQuantitiesAreDecodedInBoundedTime(t *testing.T) {
	eachProductFile(t, func(file string, fset *token.FileSet, f *ast.File) {
		if strings.HasPrefix(file, "internal/quantity/") || strings.HasPrefix(file, "e2e/") || strings.HasPrefix(file, "examples/") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := call.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch from.Name + "." + call.Sel.Name {
			case "resource.ParseQuantity", "kjson.UnmarshalStrict", "kjson.UnmarshalCaseSensitivePreserveInts":
				t.Errorf("%s: use internal/quantity instead of %s.%s, which can take hours", fset.Position(n.Pos()), from.Name, call.Sel.Name)
			}
			return true
		})
	})
}
