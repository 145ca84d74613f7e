package cause_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// words returns the values of the constants of a type in a file, by name.
func words(t *testing.T, file, typ string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			v := s.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != typ {
				continue
			}
			value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all[v.Names[0].Name] = value
		}
	}
	return all
}

// Kinds and faults are an interface for programs: each has a word of its own, which is its name unless that would not be understood alone.
func TestKindsAndFaultsAreUniqueWords(t *testing.T) {
	for _, tt := range []struct {
		file, typ string
		least     int
		other     map[string]string
	}{
		{"kind.go", "Kind", 70, map[string]string{"Gate": "ReadinessGate", "Deadline": "DeadlineExceeded"}},
		{"cause.go", "Fault", 20, nil},
	} {
		all := words(t, tt.file, tt.typ)
		if len(all) < tt.least {
			t.Errorf("%s: only %d constants of %s found", tt.file, len(all), tt.typ)
		}
		names := map[string]string{}
		for name, value := range all {
			if want := tt.other[name]; value != name && value != want {
				t.Errorf("%s is %q", name, value)
			}
			if twin, taken := names[value]; taken {
				t.Errorf("%s and %s are both %q", name, twin, value)
			}
			names[value] = name
		}
	}
}
