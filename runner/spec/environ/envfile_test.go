package environ

import (
	"strings"
	"testing"
)

func TestVariablesOfAFile(t *testing.T) {
	for _, tt := range []struct {
		name, text, value string
		missing           bool
		err               string
	}{
		{name: "a value", text: "A='1'\nK='two words'\n", value: "two words"},
		{name: "without a line end", text: "K='v'", value: "v"},
		{name: "with carriage returns", text: "A='1'\r\nK='v'\r\n", value: "v"},
		{name: "blanks before it, a comment behind it", text: " \t K='v' # why\n", value: "v"},
		{name: "blank lines and comments", text: "\n \t\n# K='no'\n  # K='no'\nK='v'\n", value: "v"},
		{name: "several lines", text: "A='x\nK=no\n'\nK='one\n\n # two'\n", value: "one\n\n # two"},
		{name: "nothing is expanded", text: `K='$A ${B} \n \' # "x"'`, value: `$A ${B} \n \`},
		{name: "everything is taken as it is", text: `K='$A ${B} \n "x" a=b'`, value: `$A ${B} \n "x" a=b`},
		{name: "the first one counts", text: "K='1'\nK='2'\n", value: "1"},
		{name: "an empty one", text: "K=''\n", value: ""},
		{name: "a blank behind =", text: "A= 'x\nK= 'v'\n", value: ""},
		{name: "other keys", text: "KK='1'\nk='2'\n", missing: true},
		{name: "an empty file", text: "", missing: true},
		{name: "what follows does not matter", text: "K='v'\nnonsense\n", value: "v"},
		{name: "what comes before does", text: "A='1'\nnonsense\nK='v'\n", err: "line 2: no '=' in it"},
		{name: "no quotes", text: "K=v\n", err: "line 1: the value is not in single quotes"},
		{name: "nothing behind =", text: "K=\n", err: "line 1: the value is not in single quotes"},
		{name: "double quotes", text: "K=\"v\"\n", err: "line 1: the value is not in single quotes"},
		{name: "two quotes", text: "K='v''w'\n", err: "line 1: something follows the closing quote"},
		{name: "an open quote", text: "A='1'\nK='v\nw\n", err: "line 2: the quote is not closed"},
		{name: "a blank before =", text: "K ='v'\n", err: "line 1: a space before '='"},
		{name: "no name", text: "='v'\n", err: "line 1: no name before '='"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value, found, err := lookUp(tt.text, "K")
			if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err == nil && (value != tt.value || found == tt.missing) {
				t.Errorf("value %q, found %t", value, found)
			}
		})
	}
}

func FuzzVariablesOfAFile(f *testing.F) {
	f.Add("# c\nA='1\n2' # x\nK= \nB='", "K")
	f.Fuzz(func(t *testing.T, text, key string) {
		value, found, err := lookUp(text, key)
		if err == nil && found && !strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), value) && !strings.HasPrefix(text, "\r") {
			t.Errorf("value %q of %q", value, text)
		}
	})
}
