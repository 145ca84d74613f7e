package jsonlimit_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"monopod/internal/jsonlimit"
)

func TestValuesAreCountedOutsideOfStrings(t *testing.T) {
	for text, many := range map[string]bool{
		`[1,2]`: false, `[1,2,3]`: false, `[1,2,3,4]`: true, `[[[`: false, `[[[[`: true, `{"a":{"b":{"c":{}}}}`: true,
		`["[,{,[,{,"]`: false, `["\"[,{,[,{,"]`: false, `["\\",1,2,3]`: true, `"`: false, ``: false,
	} {
		for how, from := range map[string]io.Reader{"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			got, err := io.ReadAll(jsonlimit.NewReader(from, 3))
			if many != errors.Is(err, jsonlimit.ErrTooMany) || !many && (err != nil || string(got) != text) {
				t.Errorf("%s, %s: %q, %v", text, how, got, err)
			}
		}
	}
}
