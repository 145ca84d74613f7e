package fates

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/testfiles"
	"monopod/internal/wrap"
	"monopod/manifests/document"
	"monopod/manifests/schema"
)

func TestEveryFieldHasAFate(t *testing.T) {
	leaves := 0
	podFields().leaves(func(f *fieldNode) {
		leaves++
		if f.fate == nil {
			t.Errorf("%s: no line of the table speaks for it", f.path)
		}
	})
	if leaves < 1000 {
		t.Errorf("only %d leaves found below a Pod", leaves)
	}
}

func TestEveryLineOfTheTableHasAField(t *testing.T) {
	known := map[string]bool{}
	var visit func(f *fieldNode)
	visit = func(f *fieldNode) {
		known[f.path] = true
		for _, c := range f.children {
			visit(c)
		}
	}
	visit(podFields())
	seen := map[string]bool{}
	for _, line := range fates() {
		if !known[line.path] {
			t.Errorf("%s: there is no such field", line.path)
		}
		if seen[line.path] {
			t.Errorf("%s: has two lines", line.path)
		}
		seen[line.path] = true
		checkLine(t, line)
	}
}

// checkLine checks that a line has the texts that its fate requires.
func checkLine(t *testing.T, line fieldFate) {
	t.Helper()
	reasoned := func(note string) bool { return strings.HasPrefix(note, "never: ") }
	switch {
	case (line.fate == harmless || line.fate == warned) && line.note == "":
		t.Errorf("%s: a field without effect needs a reason", line.path)
	case line.fate == warned && (line.remark == "") != line.elsewhere:
		t.Errorf("%s: exactly one place has the warning about a field", line.path)
	case line.elsewhere && line.fate != warned:
		t.Errorf("%s: there is no warning about a field that is %s", line.path, line.fate)
	case line.fate == refused && !reasoned(line.note):
		t.Errorf("%s: a refused field needs a reason, not %q", line.path, line.note)
	case line.only == nil && line.later != nil:
		t.Errorf("%s: values are refused but none accepted", line.path)
	case line.only != nil && (line.fate == refused || !reasoned(line.other)):
		t.Errorf("%s: refused values need a reason, not %q", line.path, line.other)
	}
}

// TestAFieldIsRefusedExactlyWhenTheTableSaysSo sets each leaf of a Pod, alone, and looks at the verdict.
func TestAFieldIsRefusedExactlyWhenTheTableSaysSo(t *testing.T) {
	counts := map[fate]int{}
	podFields().leaves(func(f *fieldNode) {
		// Keys of maps with a line of their own are covered by the tables of refuse_test.go.
		if strings.ContainsAny(f.path, "{") && !strings.HasSuffix(f.path, "{}") || f.fate == nil {
			return
		}
		if strings.HasPrefix(f.path, "metadata.annotations") || f.path == "metadata.generateName" {
			return
		}
		counts[f.fate.fate]++
		var pod corev1.Pod
		value := fill(reflect.ValueOf(&pod).Elem(), strings.Split(strings.ReplaceAll(strings.ReplaceAll(f.path, "[]", ".[]"), "{}", ".{}"), "."))
		want := f.fate.fate == refused || !f.fate.allows(value)
		found, _ := Refusals(&pod, document.Item{Source: &document.Source{}})
		if got := len(found) > 0; got != want {
			t.Errorf("%s set alone: refused is %t, want %t: %v", f.path, got, want, found)
		}
		for _, p := range found {
			if p.Msg == "" || !strings.HasPrefix(f.path, strings.NewReplacer("[0]", "[]", "[key]", "{}").Replace(p.Path)) {
				t.Errorf("%s set alone: refused at %s with %q", f.path, p.Path, p.Msg)
			}
		}
	})
	for f, least := range map[fate]int{enforced: 20, harmless: 20, warned: 3, refused: 20} {
		if counts[f] < least {
			t.Errorf("only %d %s fields tried", counts[f], f)
		}
	}
}

// fill sets the field at path to something and returns its value.
func fill(v reflect.Value, path []string) reflect.Value {
	for v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if len(path) == 0 {
		setSomething(v)
		return v
	}
	switch path[0] {
	case "[]":
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0), path[1:])
	case "{}":
		elem := reflect.New(v.Type().Elem()).Elem()
		set := fill(elem, path[1:])
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), elem)
		return set
	}
	for _, f := range schema.Fields(v.Type()) {
		if f.Name == path[0] {
			return fill(v.FieldByIndex(f.Index), path[1:])
		}
	}
	panic("no field " + path[0])
}

func setSomething(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("something")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(7)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	default:
		for _, text := range []string{`"2006-01-02T15:04:05Z"`, `"2006-01-02T15:04:05.000000Z"`, `7`, `{"a":1}`} {
			if json.Unmarshal([]byte(text), v.Addr().Interface()) == nil && !v.IsZero() {
				return
			}
		}
		panic("cannot set a " + v.Type().String())
	}
}

// TestFieldsDoc holds docs/fields.md against the table: go test ./manifests/fates -run TestFieldsDoc -update.
func TestFieldsDoc(t *testing.T) {
	testfiles.Compare(t, filepath.Join("..", "..", "docs", "fields.md"), fieldsDoc())
}

const fieldsIntro = `# What becomes of each field

Generated from manifests/fates/fates.go; do not edit (` + "`go test ./manifests/fates -run TestFieldsDoc -update`" + `).

- **enforced**: the field does what Kubernetes says it does. For each of them a test runs a real container with the field
  and, in most cases, one without it, which must show the difference (e2e/fields).
- **harmless**: accepted, without effect on one machine, for the given reason.
- **warned**: accepted with a warning: it has no effect on one machine, though its author may rely on the one that it has in a cluster.
- **refused**: a manifest that sets the field is refused, with file, line and what to do. The note says which release
  will support the field, or why none will.

A field of ` + "`spec.initContainers[]`" + ` that is not listed has the fate of the same field of ` + "`spec.containers[]`" + `.

` + "`[]`" + ` stands for any element of a list, ` + "`{}`" + ` for any key of a map that has no line of its own. Fields that a manifest does
not set are never refused, nor are those it sets to their zero value.

`

// fieldsDoc writes the document.
func fieldsDoc() string {
	var b strings.Builder
	b.WriteString(fieldsIntro)
	counts := map[fate]int{}
	podFields().leaves(func(f *fieldNode) { counts[f.fate.fate]++ })
	fmt.Fprintf(&b, "Of the %d fields of a Pod, %d are enforced, %d harmless, %d warned of and %d refused.\n",
		counts[enforced]+counts[harmless]+counts[warned]+counts[refused], counts[enforced], counts[harmless], counts[warned], counts[refused])
	for _, part := range podFields().children {
		rows := fieldRows(part)
		fmt.Fprintf(&b, "\n## %s\n\n| field | fate | note |\n|---|---|---|\n", part.name)
		var long []string
		for _, r := range rows {
			line := fmt.Sprintf("| %s | %s | %s |\n", r.path, r.fate, r.note)
			if utf8.RuneCountInString(line) > docColumns {
				line = fmt.Sprintf("| %s | %s | see below |\n", r.path, r.fate)
				text := "- " + r.path + ": "
				if utf8.RuneCountInString(line) > docColumns {
					line, text = "", fmt.Sprintf("- %s, %s: ", r.path, r.fate)
				}
				long = append(long, wrap.Text(text+r.note, docColumns, "  ")+"\n")
			}
			b.WriteString(line)
		}
		if len(long) > 0 {
			b.WriteString("\n" + strings.Join(long, ""))
		}
	}
	return b.String()
}

// docColumns is the width of docs/fields.md.
const docColumns = 140

// docRow is a row of a table in docs/fields.md.
type docRow struct {
	path string
	fate fate
	note string
}

// fieldRows writes the rows of a field: one for a whole subtree of fields that are not enforced, else one for each leaf.
func fieldRows(f *fieldNode) []docRow {
	if f.fate != nil && f.fate.same != "" {
		return nil
	}
	if !f.mixed && f.fate != nil && (len(f.children) == 0 || f.fate.fate != enforced) {
		return []docRow{rowOf(f)}
	}
	var rows []docRow
	if f.own != nil && f.own.fate == refused {
		rows = append(rows, rowOf(f))
	}
	for _, c := range f.children {
		// A refused line covers the fields below it.
		if inner := fieldRows(c); f.own == nil || f.own.fate != refused || c.own != nil || c.mixed {
			rows = append(rows, inner...)
		}
	}
	return slices.Compact(rows)
}

func rowOf(f *fieldNode) docRow {
	n := 0
	f.leaves(func(*fieldNode) { n++ })
	path := "`" + f.path + "`"
	if n > 1 {
		path += fmt.Sprintf(" (%d fields)", n)
	}
	note := f.fate.note
	switch {
	case f.fate.only != nil:
		other := f.fate.other
		rest := "other values"
		if f.fate.later != nil {
			rest = quoteAll(f.fate.later)
		}
		only := fmt.Sprintf("%s; %s: %s", quoteAll(f.fate.only), rest, other)
		note = strings.TrimPrefix(note+"; "+only, "; ")
	}
	if f.fate.hint != "" {
		note += ". Instead: " + f.fate.hint
	}
	return docRow{path, f.fate.fate, note}
}

func quoteAll(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	return strings.Join(quoted, " and ")
}
