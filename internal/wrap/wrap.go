// Package wrap breaks text into lines. It owns no state, and must not know what the text is about.
package wrap

import (
	"strings"
	"unicode/utf8"
)

// Text returns the words of a text in lines of at most width columns, except for words that are longer. All lines but the first begin with
// indent.
func Text(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for w := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(w)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = utf8.RuneCountInString(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(w)
		column += n
	}
	return b.String()
}
