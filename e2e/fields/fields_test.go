package fields

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monopod/manifests/decode"
)

var row = regexp.MustCompile("(?m)^(?:\\| `([^`]+)` \\| enforced \\||- `([^`]+)`, enforced:)")

// enforced returns the fields listed as enforced in docs/fields.md; a test of manifests keeps that in sync with the code.
func enforced(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/fields.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		all = append(all, m[1]+m[2])
	}
	if len(all) < 200 {
		t.Fatalf("only %d enforced fields in docs/fields.md", len(all))
	}
	return all
}

// TestEachEnforcedFieldHasARow fails for an enforced field without a row, and for a row of any other field.
func TestEachEnforcedFieldHasARow(t *testing.T) {
	want := enforced(t)
	have := map[string]int{}
	by, inInit := 0, map[string]bool{}
	for _, r := range All() {
		for _, run := range r.Runs() {
			inInit[run.Without] = inInit[run.Without] || run.Init
		}
		for _, f := range r.Fields {
			if f = Normal(f); have[f] == 0 && r.By != "" {
				by++
			}
			have[f]++
			if !slices.Contains(want, f) {
				t.Errorf("row %s: %s is no enforced field of docs/fields.md", r.Name, f)
			}
		}
	}
	covered := 0
	for _, f := range want {
		if have[f] == 0 {
			t.Errorf("%s is enforced, but has no row: nothing fails when it is ignored", f)
			continue
		}
		covered++
	}
	maps.DeleteFunc(inInit, func(field string, is bool) bool { return field == "" || !is })
	t.Logf("%d enforced fields, %d with a test that fails when the field is ignored (%d of them in a test of their own, %d in init containers as well), %d without",
		len(want), covered, by, len(inInit), len(want)-covered)
}

// words are replacements like those of a run on a real agent.
func words() Words {
	return Words{
		"IMAGE": "monopod.test/busybox:1", "DIR": "/dir", "PORT": "40001", "PORT2": "40002", "FREEPORT": "40003",
		"REGISTRY": "127.0.0.1:40004", "NODE": "e2e", "BIN": "/bin", "CDIKIND": "e2e.monopod.dev/row",
	}
}

func load(t *testing.T, r *Run, edited bool) error {
	t.Helper()
	text, err := r.Manifest(words(), edited)
	if err != nil {
		t.Fatal(err)
	}
	// The file name is irrelevant; no file is read.
	if _, err = decode.All(r.Name+".yaml", []byte(text), decode.Options{}); err != nil {
		t.Logf("%s without %q: %v", r.Name, r.Without, err)
	}
	return err
}

// TestRowsAreAcceptedWithAndWithoutTheirFields finds mistakes in rows without running them.
func TestRowsAreAcceptedWithAndWithoutTheirFields(t *testing.T) {
	names := map[string]bool{}
	for _, r := range All() {
		t.Run(r.Name, func(t *testing.T) {
			if names[r.Name] || r.Name == "" || len(r.Fields) == 0 {
				t.Fatal("a row needs a name of its own, and fields")
			}
			names[r.Name] = true
			listed := slices.Concat(slices.Collect(maps.Keys(r.Otherwise)), slices.Collect(maps.Keys(r.Cut)), r.Refused)
			for _, f := range listed {
				if !slices.Contains(r.Fields, f) {
					t.Errorf("%s is not in Fields", f)
				}
			}
			for _, run := range r.Runs() {
				if load(t, run, false) != nil || r.Edit != nil && load(t, run, true) != nil {
					t.Errorf("without %q it is refused", run.Without)
				}
			}
			for _, run := range r.RefusedRuns() {
				if load(t, run, false) == nil {
					t.Errorf("without %q it is accepted", run.Without)
				}
			}
		})
	}
}

// TestTestsThatRowsNameExist also looks for the fields in them.
func TestTestsThatRowsNameExist(t *testing.T) {
	tests := map[string]string{}
	for _, pattern := range []string{"../*_test.go", "../../runner/ctrd/*_e2e_test.go", "../../runner/ctrd/*/*_e2e_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			maps.Copy(tests, testsOf(t, file))
		}
	}
	for _, r := range All() {
		if r.By == "" {
			continue
		}
		text, ok := tests[r.By]
		if !ok {
			t.Errorf("row %s: there is no %s with the build tag e2e", r.Name, r.By)
		}
		for _, f := range r.Fields {
			marker := r.Marker
			if marker == "" {
				parts := split(f)
				marker = strings.Trim(parts[len(parts)-1], "{}*")
			}
			if !strings.Contains(text, marker) {
				t.Errorf("row %s: %s does not contain %q", r.Name, r.By, marker)
			}
		}
	}
}

// testsOf returns the source of the tests of a file, if it has the build tag.
func testsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(src), "//go:build e2e\n") {
		return nil
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			tests[f.Name.Name] = string(src[set.Position(from).Offset:set.Position(f.End()).Offset])
		}
	}
	return tests
}

func TestAPathFindsItsPlaces(t *testing.T) {
	tree := func() map[string]any {
		v, err := parse[map[string]any](`{a: [{b: {x/y: 1, hugepages-2Mi: 2, c: [3]}}, {b: {c: [4]}}, {}], d: {e: f}}`)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for path, want := range map[string]int{
		"a[].b.c[]": 2, "a[].b{hugepages-*}": 1, "a[].b{<vendor>/<class>}": 1, "a[].b{c}": 2, "d{}": 1, "d.e": 1, "d.no": 0, "a[].no.c": 0,
	} {
		v := tree()
		if got := visit(v, split(path), func(m map[string]any, key string) { delete(m, key) }); got != want {
			t.Errorf("%s: %d places, want %d", path, got, want)
		}
		if left := visit(v, split(path), func(map[string]any, string) {}); left != 0 {
			t.Errorf("%s: %d places left", path, left)
		}
	}
}
