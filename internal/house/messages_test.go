package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// No decision depends on the text of a message: facts are passed as values (see docs/adr/0009-causes-are-values.md). Errors of libraries
// that are only text are classified where they enter, in a file named classify.go with a table test. The test below tracks messages within
// a package: from their origin (Error(), a field named Message, Why, ...) through variables, string functions and parameters to code that
// matches or splits text.

// readers lists other files that may inspect messages, by path suffix, with the reason.
func readers() map[string]string {
	const printer = "it prints"
	const parser = "errors of the YAML and JSON libraries, and of Kubernetes' validation, enter here as texts"
	return map[string]string{
		"internal/printer/errors.go":      printer,
		"internal/printer/text.go":        printer,
		"node/why/chain.go":               printer,
		"manifests/decode/decode.go":      parser,
		"manifests/explain/hints.go":      parser,
		"manifests/explain/suggest.go":    parser,
		"manifests/explain/syntax.go":     parser,
		"manifests/document/yamlwords.go": parser,
		"runner/ctrd/remote/iscsi.go":     "it keeps logins out of errors",
		"watcher/fetch/remote.go":         "it keeps port numbers, which are others each time, out of errors",
	}
}

// messageFields are the names of fields that contain messages.
func messageFields() []string {
	return []string{"Message", "Msg", "Why", "Detail", "Errors", "Output", "Text", "Reason", "Stderr"}
}

func TestMessagesAreNotParsed(t *testing.T) {
	unused := readers()
	packages := map[string]*messages{}
	eachFile(t, func(file string, set *token.FileSet, f *ast.File) {
		dir := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || isTestSupport(dir) {
			return
		}
		if packages[dir] == nil {
			packages[dir] = newMessages(set)
		}
		packages[dir].add(f)
	})
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		for _, found := range packages[dir].parsed() {
			file := found.Filename
			if path.Base(file) == "classify.go" {
				continue
			}
			if excuse := excused(file); excuse != "" {
				delete(unused, excuse)
				continue
			}
			t.Errorf("%s:%d: a message is matched or taken apart: carry a value instead (internal/cause), or classify the errors of others in a file named classify.go", file, found.Line)
		}
	}
	for file := range unused {
		t.Errorf("%s looks into no messages any more: take it off the list", file)
	}
}

// excused returns the entry of readers for a file; empty if there is none.
func excused(file string) string {
	for name := range readers() {
		if strings.HasSuffix(file, name) {
			return name
		}
	}
	return ""
}

func TestEachClassifierHasATableTest(t *testing.T) {
	files := map[string]bool{}
	eachFile(t, func(file string, _ *token.FileSet, _ *ast.File) { files[file] = true })
	n := 0
	for file := range files {
		if path.Base(file) != "classify.go" {
			continue
		}
		n++
		if !files[path.Join(path.Dir(file), "classify_test.go")] {
			t.Errorf("%s has no classify_test.go", file)
		}
	}
	if n == 0 {
		t.Error("there are no classifiers")
	}
}

// TestParsedMessagesAreFound checks the checker above.
func TestParsedMessagesAreFound(t *testing.T) {
	for name, row := range map[string]struct {
		body string
		want int
	}{
		"an error":                   {`if strings.Contains(err.Error(), "not found") { return }`, 1},
		"a field":                    {`_ = strings.HasPrefix(f.Message, "The node was low")`, 1},
		"a variable":                 {`text := oneLine(err.Error()); text = strings.TrimSpace(text); _ = strings.Index(text, "x509:")`, 1},
		"a regular expression":       {`m := notFound.FindStringSubmatch(t.Message); _ = m`, 1},
		"a parameter":                {`_ = has(err.Error(), "a")`, 1},
		"a formatted error":          {`s := fmt.Sprintf("x: %v", err); _, _, _ = strings.Cut(s, ": ")`, 1},
		"a comparison":               {`if err.Error() == "gc failed" { return }`, 1},
		"a switch":                   {`switch t.Message { case "gc failed": }`, 1},
		"all of several":             {`for _, e := range r.Errors { _ = strings.Contains(e, "x") }`, 1},
		"part of several":            {`_ = strings.Split(r.Errors[0], ": ")`, 1},
		"a code":                     {`if t.Reason == "Evicted" { return }`, 0},
		"part of a code":             {`_, _ = strings.CutPrefix(t.Reason, "OutOf")`, 1},
		"other text":                 {`_ = strings.Contains(path, "x")`, 0},
		"printing":                   {`fmt.Println(err.Error(), t.Message)`, 0},
		"whether there is a message": {`if t.Message == "" { return }`, 0},
	} {
		source := "package p\nfunc f() {\n" + row.body + "\n}\nfunc has(text string, words ...string) bool { return strings.Contains(text, words[0]) }\nfunc oneLine(text string) string { return text }\n"
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "p.go", source, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := newMessages(set)
		m.add(file)
		if found := m.parsed(); len(found) != row.want {
			t.Errorf("%s: %d found, want %d: %v", name, len(found), row.want, found)
		}
	}
}

// messages tracks messages through the functions of a package.
type messages struct {
	set       *token.FileSet
	functions map[string][]*ast.FuncDecl
	// params are the parameters that receive a message, by function name.
	params map[string]map[int]bool
	// known are the variables that contain messages, by function.
	known map[*ast.FuncDecl]map[string]bool
	found map[token.Position]bool
	more  bool
}

func newMessages(set *token.FileSet) *messages {
	return &messages{
		set: set, functions: map[string][]*ast.FuncDecl{}, params: map[string]map[int]bool{}, known: map[*ast.FuncDecl]map[string]bool{}, found: map[token.Position]bool{},
	}
}

func (m *messages) add(f *ast.File) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			m.functions[fn.Name.Name] = append(m.functions[fn.Name.Name], fn)
			m.known[fn] = map[string]bool{}
		}
	}
}

// parsed returns where messages are matched or split.
func (m *messages) parsed() []token.Position {
	for m.more = true; m.more; {
		m.more = false
		for _, same := range m.functions {
			for _, fn := range same {
				m.follow(fn)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(m.found), func(a, b token.Position) int { return strings.Compare(a.String(), b.String()) })
}

// follow inspects a function, given its variables known so far.
func (m *messages) follow(fn *ast.FuncDecl) {
	i := 0
	for _, field := range fn.Type.Params.List {
		for _, name := range field.Names {
			if m.params[fn.Name.Name][i] {
				m.learn(fn, name)
			}
			if _, variadic := field.Type.(*ast.Ellipsis); !variadic {
				i++
			}
		}
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				right := n.Rhs[min(i, len(n.Rhs)-1)]
				if m.holds(fn, right) {
					m.learn(fn, left)
				}
			}
		case *ast.RangeStmt:
			if m.holds(fn, n.X) {
				m.learn(fn, n.Value)
			}
		case *ast.CallExpr:
			m.call(fn, n)
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				m.compare(fn, n.X, n.Y)
				m.compare(fn, n.Y, n.X)
			}
		case *ast.SwitchStmt:
			for _, clause := range n.Body.List {
				for _, value := range clause.(*ast.CaseClause).List {
					m.compare(fn, n.Tag, value)
				}
			}
		}
		return true
	})
}

func (m *messages) learn(fn *ast.FuncDecl, e ast.Expr) {
	if id, ok := e.(*ast.Ident); ok && id.Name != "_" && !m.known[fn][id.Name] {
		m.known[fn][id.Name], m.more = true, true
	}
}

// compare reports comparisons of a message with a text. Codes, such as reasons, may be compared.
func (m *messages) compare(fn *ast.FuncDecl, message, text ast.Expr) {
	if lit, ok := text.(*ast.BasicLit); !ok || lit.Kind != token.STRING || len(lit.Value) == 2 || !strings.Contains(lit.Value, " ") {
		return
	}
	if message != nil && m.holds(fn, message) {
		m.found[m.set.Position(message.Pos())] = true
	}
}

// call reports calls that match text, and marks the parameters of functions of the package that receive messages.
func (m *messages) call(fn *ast.FuncDecl, call *ast.CallExpr) {
	pkg, name := called(call)
	if matches(pkg, name) {
		for _, arg := range call.Args[:min(1, len(call.Args))] {
			if m.holds(fn, arg) {
				m.found[m.set.Position(call.Pos())] = true
			}
		}
		return
	}
	if len(m.functions[name]) == 0 {
		return
	}
	for i, arg := range call.Args {
		if !m.params[name][i] && m.holds(fn, arg) {
			if m.params[name] == nil {
				m.params[name] = map[int]bool{}
			}
			m.params[name][i], m.more = true, true
		}
	}
}

// holds reports whether an expression is a message, or text derived from one.
func (m *messages) holds(fn *ast.FuncDecl, e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return m.known[fn][e.Name]
	case *ast.SelectorExpr:
		return slices.Contains(messageFields(), e.Sel.Name)
	case *ast.ParenExpr:
		return m.holds(fn, e.X)
	case *ast.IndexExpr:
		return m.holds(fn, e.X)
	case *ast.SliceExpr:
		return m.holds(fn, e.X)
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (m.holds(fn, e.X) || m.holds(fn, e.Y))
	case *ast.CallExpr:
		pkg, name := called(e)
		switch {
		case name == "Error" && len(e.Args) == 0:
			return true
		case pkg == "strings" || pkg == "cmp" || pkg == "string" || pkg == "byte" || m.returnsText(name):
			return slices.ContainsFunc(e.Args, func(a ast.Expr) bool { return m.holds(fn, a) })
		case pkg == "fmt" && strings.HasPrefix(name, "Sprint"):
			return slices.ContainsFunc(e.Args, func(a ast.Expr) bool { return isError(a) || m.holds(fn, a) })
		}
	}
	return false
}

// returnsText reports whether a function of the package returns text.
func (m *messages) returnsText(name string) bool {
	return slices.ContainsFunc(m.functions[name], func(fn *ast.FuncDecl) bool {
		if fn.Type.Results == nil {
			return false
		}
		switch r := fn.Type.Results.List[0].Type.(type) {
		case *ast.Ident:
			return r.Name == "string"
		case *ast.ArrayType:
			id, ok := r.Elt.(*ast.Ident)
			return ok && id.Name == "string"
		}
		return false
	})
}

// isError reports whether an expression has a name that errors usually have.
func isError(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "err" || strings.HasSuffix(id.Name, "Err"))
}

// called returns the package or variable, if it is a plain name, and the name of the called function.
func called(call *ast.CallExpr) (pkg, name string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			pkg = x.Name
		}
		return pkg, f.Sel.Name
	}
	return "", ""
}

// matches reports whether a function matches or splits text.
func matches(pkg, name string) bool {
	if pkg == "strings" || pkg == "bytes" {
		for _, prefix := range []string{"Contains", "HasPrefix", "HasSuffix", "Cut", "Index", "LastIndex", "Split", "EqualFold", "Count"} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	return strings.HasPrefix(name, "FindString") || strings.HasPrefix(name, "FindAllString") || strings.HasPrefix(name, "MatchString") || strings.HasPrefix(name, "ReplaceAllString")
}
