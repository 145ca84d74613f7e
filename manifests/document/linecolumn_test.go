package document_test

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"monopod/manifests/document"
)

// TestLineColumnIsThatOfCounting compares with a walk over all characters.
func TestLineColumnIsThatOfCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(rapid.StringOf(rapid.SampledFrom([]rune("aä\n\r \u2028"))).Draw(t, "data"))
		offset := rapid.IntRange(0, len(data)).Draw(t, "offset")
		for offset < len(data) && !utf8.RuneStart(data[offset]) {
			offset++
		}
		if offset > 0 && offset < len(data) && data[offset-1] == '\r' && data[offset] == '\n' {
			offset++ // between the two characters of one line end
		}
		line, column := 1, 1
		for i, r := range string(data[:offset]) {
			column++
			if end := i + 1; r == '\n' || r == '\u2028' || r == '\r' && (end == len(data) || data[end] != '\n') {
				line, column = line+1, 1
			}
		}
		if gotLine, gotColumn := document.LineColumn(data, offset); gotLine != line || gotColumn != column {
			t.Fatalf("%q at %d: %d:%d, want %d:%d", data, offset, gotLine, gotColumn, line, column)
		}
	})
}
