package config

import (
	"errors"
	"testing"
)

func TestYAMLErrorsAreSplitIntoLineAndMessage(t *testing.T) {
	for text, want := range map[string]struct {
		line int
		msg  string
	}{
		"yaml: line 3: mapping values are not allowed in this context": {3, "yaml: mapping values are not allowed in this context"},
		"yaml: unmarshal errors":                   {0, "yaml: unmarshal errors"},
		"yaml: line 99999999999999999999: too far": {0, "yaml: line 99999999999999999999: too far"},
	} {
		if line, msg := splitYAMLError(errors.New(text)); line != want.line || msg != want.msg {
			t.Errorf("%s: %d %q", text, line, msg)
		}
	}
}
