package fates

import (
	"reflect"
	"testing"
)

func TestValuesThatALineAllows(t *testing.T) {
	for _, tt := range []struct {
		name  string
		line  fieldFate
		value string
		want  bool
	}{
		{"any value", fieldFate{}, "x", true},
		{"one of the list", fieldFate{only: []string{"a", "b"}}, "b", true},
		{"one that is not in the list", fieldFate{only: []string{"a", "b"}}, "c", false},
		{"one that begins like the list", fieldFate{only: []string{"a*"}}, "abc", true},
		{"one that a later release allows", fieldFate{only: []string{"a"}, later: []string{"b"}}, "b", false},
		{"one that is no value at all, which validation reports", fieldFate{only: []string{"a"}, later: []string{"b"}}, "c", true},
	} {
		if got := tt.line.allows(reflect.ValueOf(tt.value)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestKeysOfMapsWithLinesOfTheirOwn(t *testing.T) {
	metadata := podFields().children[2]
	var annotations *fieldNode
	for _, c := range metadata.children {
		if c.path == "metadata.annotations" {
			annotations = c
		}
	}
	for key, want := range map[string]string{"cdi.k8s.io/x": "metadata.annotations{cdi.k8s.io/*}", "a/b": "metadata.annotations{}"} {
		if got := annotations.key(key); got.path != want {
			t.Errorf("%s is %s, want %s", key, got.path, want)
		}
	}
}
