package document_test

import (
	"fmt"
	"testing"

	"monopod/manifests/document"
)

func TestPositionsOfFields(t *testing.T) {
	s := &document.Source{Doc: document.Document{Line: 10, Data: []byte(`metadata:
  annotations:
    example.com/a.b: x
    on: y
spec:
  base: &base
    image: app
    name: one
  containers:
  - <<: *base
    name: two
  - <<: [*base, {args: [a]}]
  - *base
  list: [a, [b, c]]
`)}}
	for _, c := range []struct {
		name, path string
		atKey      bool
		want       string
	}{
		{"the document", "", false, "10:1"},
		{"a mapping stands at its key", "spec", false, "14:1"},
		{"a scalar stands at its value", "spec.base.image", false, "16:12"},
		{"or at its key", "spec.base.image", true, "16:5"},
		{"a list element", "spec.containers[1]", false, "21:5"},
		{"a key of its own before a merged one", "spec.containers[0].name", false, "20:11"},
		{"a merged key", "spec.containers[0].image", false, "16:12"},
		{"a key merged from a list", "spec.containers[1].args[0]", false, "21:25"},
		{"an alias", "spec.containers[2].name", false, "17:11"},
		{"a list in a list", "spec.list[1][1]", false, "23:17"},
		{"a key in brackets", "metadata.annotations[example.com/a.b]", false, "12:22"},
		{"a key with dots and without brackets", "metadata.annotations.example.com/a.b", false, "12:22"},
		{"a word that YAML reads as a boolean", "metadata.annotations[true]", false, "13:9"},
		{"what is not there: the nearest field around it", "spec.base.command[3].x", false, "15:3"},
		{"an index out of range", "spec.list[7]", false, "23:3"},
		{"a bracket that does not close", "spec[list", false, "23:3"},
	} {
		line, column := s.Position(document.Problem{Path: c.path, AtKey: c.atKey})
		if got := fmt.Sprintf("%d:%d", line, column); got != c.want {
			t.Errorf("%s (%s): got %s, want %s", c.name, c.path, got, c.want)
		}
	}
}

func TestPositionsWithoutASyntaxTree(t *testing.T) {
	s := &document.Source{Doc: document.Document{Line: 7, Data: []byte("a: [")}}
	if line, column := s.Position(document.Problem{Path: "a"}); line != 7 || column != 0 {
		t.Errorf("got %d:%d, want the document's line", line, column)
	}
	if got := s.Scalar("a"); got != "" {
		t.Errorf("got %q", got)
	}
}
