package codec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestErrorsOfTheYAMLParserAreLines(t *testing.T) {
	_, parsed := yaml.YAMLToJSONStrict([]byte("a: 1\na: 2\nb: 1\nb: 2\n"))
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"that of the parser": {parsed, []string{`line 2: key "a" already set in map`, `line 4: key "b" already set in map`}},
		"with its lead":      {errors.New("error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: x\n  line 2: y"), []string{"line 1: x", "line 2: y"}},
		"another":            {errors.New("read\x1b"), []string{`read\x1b`}},
	} {
		if got := yamlErrors(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := yamlErrors(errors.New(strings.Repeat("x\n", 1000))); len(got) > maxUnknown+1 {
		t.Errorf("%d lines", len(got))
	}
}
