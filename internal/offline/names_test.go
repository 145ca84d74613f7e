package offline

import (
	"fmt"
	"strings"
	"testing"
)

func TestNamesAreFoundInWhatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"block style":       {"# a comment\napiVersion: v1\nkind: Pod\nmetadata:\n  labels: {app: x}\n  name: web\n  namespace: shop\nspec:\n  containers:\n  - name: c\n    imag: x\n", "Pod shop/web f:2"},
		"json":              {`{"apiVersion":"v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"template":{"metadata":{"name":"no"}}}`, "Deployment default/web f:1"},
		"flow style":        {"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {", "Pod default/web f:1"},
		"several documents": {"kind: Pod\nmetadata: {name: a}\n---\nkind: ConfigMap\nmetadata: {name: b}\n", "Pod default/a f:1, ConfigMap default/b f:4"},
		"a name of others":  {"kind: Pod\nspec:\n  containers: [{name: c}]\n", ""},
		"nothing":           {"", ""},
		"bytes":             {"\x00\xff\x01", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range Names("f", []byte(c.text)) {
				got = append(got, fmt.Sprintf("%s %s/%s %s", o.Kind, o.Namespace, o.Name, o.Where))
			}
			if g := strings.Join(got, ", "); g != c.want {
				t.Errorf("got %q, want %q", g, c.want)
			}
		})
	}
}

func FuzzNames(f *testing.F) {
	f.Add("kind: Pod\nmetadata: {name: a}\n---\nkind: ConfigMap\nmetadata: {name: b}\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, o := range Names("f", []byte(text)) {
			if o.Name == "" || o.Kind == "" || o.Namespace == "" || !strings.Contains(text, o.Name) {
				t.Errorf("%+v in %q", o, text)
			}
		}
	})
}

func TestGuessedNamesOfBrokenDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"# c\n\n---\n# d\n\nkind: Pod\nmetadata: {name: a}\n":           "f:6 Pod default/a",
		"metadata:\n  name: a\n":                                        "f:1 Pod default/a",
		"kind: Pod\nmetadata:\n  labels: {}\nspec:\n  name: b":          "",
		"kind: 'Job'\nmetadata:\n  namespace: \"n\"\n  name: 'a.b-c'\n": "f:1 Job n/a.b-c",
		"---\n# only a comment\n":                                       "",
	} {
		got := ""
		for _, o := range Names("f", []byte(text)) {
			got += fmt.Sprintf("%s %s %s/%s", o.Where, o.Kind, o.Namespace, o.Name)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
