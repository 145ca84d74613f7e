package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/document"
)

// item is an object at a path of a document that begins at line 10.
func item(text, prefix string) document.Item {
	return document.Item{Source: &document.Source{File: "f.yaml", Doc: document.Document{Data: []byte(text), Line: 10}}, Prefix: prefix}
}

func TestDuplicatesOfAnObject(t *testing.T) {
	const text = "items:\n- a: 1\n  a: 2\n- b: {c: 1, c: 2}\n"
	for prefix, want := range map[string]string{
		"":         "items[0].a 12:3 duplicate field, already set at line 11; items[1].b.c 13:13 duplicate field, already set at line 13",
		"items[0]": "items[0].a 12:3 duplicate field, already set at line 11",
		"items[1]": "items[1].b.c 13:13 duplicate field, already set at line 13",
		"items[2]": "",
	} {
		var got []string
		for _, p := range item(text, prefix).Duplicates() {
			got = append(got, fmt.Sprintf("%s %d:%d %s", p.Path, p.Line, p.Column, p.Msg))
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%q: %v", prefix, got)
		}
	}
}

func TestPathsOfAnObject(t *testing.T) {
	for _, tt := range []struct{ prefix, field, want string }{
		{"", "spec", "spec"},
		{"items[3]", "spec", "items[3].spec"},
		{"items[3]", "", "items[3]"},
	} {
		if got := item("", tt.prefix).Path(tt.field); got != tt.want {
			t.Errorf("%q of %q is %q", tt.field, tt.prefix, got)
		}
	}
	for _, tt := range []struct {
		path, root string
		want       bool
	}{
		{"a.b", "a", true},
		{"a[0]", "a", true},
		{"a", "a", true},
		{"ab", "a", false},
		{"b", "a", false},
		{"b", "", true},
	} {
		if got := document.Within(tt.path, tt.root); got != tt.want {
			t.Errorf("%q is within %q: %v", tt.path, tt.root, got)
		}
	}
}

func TestAnElementOfAPodListNeedNotNameItsType(t *testing.T) {
	element := item("", "items[0]")
	element.Element = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	m := map[string]any{"kind": nil}
	if kind, version := element.Complete(m); kind != "Pod" || version != "v1" || m["kind"] != "Pod" {
		t.Errorf("completed as %s %s: %v", version, kind, m)
	}
	if !element.IsPod(metav1.TypeMeta{}) || element.IsPod(metav1.TypeMeta{Kind: "Job"}) || item("", "").IsPod(metav1.TypeMeta{}) {
		t.Error("types are completed wrongly")
	}
	if !element.MayBePod(nil) || item("", "").MayBePod([]byte(`{"kind": "Job"}`)) || !item("", "").MayBePod([]byte(`{"kind": "Pod"}`)) {
		t.Error("a pod is not recognized by its bytes")
	}
}

func TestErrorsHaveTheirPlace(t *testing.T) {
	it := item("kind: Pod\nspec:\n  name: x\n", "")
	it.Kind = "Job"
	errs := it.Errors("default/a", []document.Problem{
		{Path: "spec.name", Msg: "bad", Hint: "good"},
		{Path: "spec.name", Msg: "bad", AtKey: true},
		{Path: "spec.none", Msg: "missing"},
		{Path: "spec", Msg: "known", Line: 3, Column: 4},
	})
	want := []string{
		"f.yaml:12:9: job default/a: spec.name: bad; good",
		"f.yaml:12:3: job default/a: spec.name: bad",
		"f.yaml:11:1: job default/a: spec.none: missing",
		"f.yaml:3:4: job default/a: spec: known",
	}
	var got []string
	for _, e := range errs {
		got = append(got, e.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFirstLineOfAnObject(t *testing.T) {
	for text, want := range map[string]int{
		"a: 1\n":                            10,
		"# comment\n\n---\n# comment\na: 1": 14,
		"%YAML 1.1\n--- {a: 1}\n":           11,
		"":                                  10,
	} {
		if got := item(text, "").FirstLine(); got != want {
			t.Errorf("%q starts at line %d, want %d", text, got, want)
		}
	}
	if got := item("items:\n- a: 1\n- b: 1\n", "items[1]").FirstLine(); got != 12 {
		t.Errorf("the second element starts at line %d", got)
	}
}

func TestKeysThatYAMLRenames(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"data: {on: x}\n", `data[true] YAML reads the key on as true: put it in quotes, "on"`},
		{"data: {No: x}\n", `data[false] YAML reads the key No as false: put it in quotes, "No"`},
		{"data: {True: x}\n", `data[true] YAML reads the key True as true: put it in quotes, "True"`},
		{"data:\n  1.10: x\n", `data[1.1] YAML reads the key 1.10 as 1.1: put it in quotes, "1.10"`},
		{"data:\n  012: x\n", `data[10] YAML reads the key 012 as 10: put it in quotes, "012"`},
		{"data:\n  1_000: x\n", `data[1000] YAML reads the key 1_000 as 1000: put it in quotes, "1_000"`},
		{"metadata: {labels: {off: x}}\n", `metadata.labels[false] YAML reads the key off as false: put it in quotes, "off"`},
		{"data: {\"on\": x, 80: y, '1.10': z, 1.5: w, true: v}\n", ""},
		{"data: {one: x, text: 'on: x'}\n", ""},
	} {
		got := ""
		for _, p := range item(tt.text, "").RenamedKeys() {
			got += p.Path + " " + p.Msg
		}
		if got != tt.want {
			t.Errorf("%q: %q", tt.text, got)
		}
	}
}

func TestForeignSpaceError(t *testing.T) {
	s := &document.Source{File: "f.yaml", Doc: document.Document{Data: []byte("a: 1\nb:\u00a02\n"), Line: 10}}
	if got := s.ForeignSpaceError(); got == nil || got.Line != 11 || got.Column != 3 || !strings.Contains(got.Msg, "U+00A0") {
		t.Errorf("found %v", got)
	}
	for _, text := range []string{"a: 1\n", "a: \"1\u00a02\"\n"} {
		s := &document.Source{Doc: document.Document{Data: []byte(text)}}
		if got := s.ForeignSpaceError(); got != nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestStrictJSON(t *testing.T) {
	for _, tt := range []struct{ name, text, want, err string }{
		{"a mapping", "a: 1\nb: [x]\n", `{"a":1,"b":["x"]}`, ""},
		{"a key twice", "a: 1\na: 2\n", "", "already set"},
		{"a key beside the one that is merged", "base: &b {a: 1}\nc:\n  a: 2\n  <<: *b\n", `{"base":{"a":1},"c":{"a":2}}`, ""},
		{"keys of several mappings", "x: &x {a: 1}\nz: &y {a: 2, b: 3}\nc: {<<: [*x, *y], d: 4}\n", `{"c":{"a":1,"b":3,"d":4},"x":{"a":1},"z":{"a":2,"b":3}}`, ""},
	} {
		s := &document.Source{Doc: document.Document{Data: []byte(tt.text)}}
		got, err := s.StrictJSON()
		switch {
		case tt.err == "" && (err != nil || string(got) != tt.want):
			t.Errorf("%s: %s, %v", tt.name, got, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestCheckLimits(t *testing.T) {
	bomb := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 11) + "]\n"
	for _, tt := range []struct {
		name, text string
		json       bool
		want       string
	}{
		{"a small document", "a: 1\n", false, ""},
		{"aliases that stand for little", "a: &a x\nb: [*a, *a]\n", false, ""},
		{"aliases that stand for much", bomb, false, "its aliases expand to more than 10 MiB"},
		{"many values", strings.Repeat("- a\n", document.MaxSigns), false, "one document has more than 750000 lines"},
		{"many values in JSON", strings.Repeat("[", document.MaxSigns+1), true, ""},
		{"a value that holds itself", "a: &a [*a]\n", false, ""},
	} {
		size := 0
		err := document.CheckLimits(document.Document{Data: []byte(tt.text), JSON: tt.json}, &size)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
