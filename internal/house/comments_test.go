package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// identifier is a word that can only be a name in code: it has an upper-case letter after a lower-case one.
var identifier = regexp.MustCompile(`^[a-zA-Z]*[a-z][A-Z]\w*$`)

// TestCommentsNameWhatTheyDescribe finds comments that a rename has left behind: those whose first word is the name of something else, or the
// name in another case.
func TestCommentsNameWhatTheyDescribe(t *testing.T) {
	eachFile(t, func(_ string, set *token.FileSet, file *ast.File) {
		check := func(doc *ast.CommentGroup, names ...string) {
			if doc == nil {
				return
			}
			first, _, _ := strings.Cut(strings.TrimSpace(doc.Text()), " ")
			first = strings.TrimRight(first, ",:.")
			other := func(name string) bool { return name != first && strings.EqualFold(name, first) }
			if !slices.Contains(names, first) && (identifier.MatchString(first) || slices.ContainsFunc(names, other)) {
				t.Errorf("%s: the comment of %s begins with %q", set.Position(doc.Pos()), names, first)
			}
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Doc, d.Name.Name)
			case *ast.GenDecl:
				checkSpecs(d, check)
			}
		}
	})
}

func checkSpecs(d *ast.GenDecl, check func(*ast.CommentGroup, ...string)) {
	for _, s := range d.Specs {
		doc, names := d.Doc, []string(nil)
		switch s := s.(type) {
		case *ast.TypeSpec:
			names = []string{s.Name.Name}
			if s.Doc != nil {
				doc = s.Doc
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				names = append(names, n.Name)
			}
			if s.Doc != nil {
				doc = s.Doc
			}
		default:
			continue
		}
		if len(d.Specs) == 1 || doc != d.Doc {
			check(doc, names...)
		}
	}
}
