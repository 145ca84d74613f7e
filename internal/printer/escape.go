package printer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns text as it is safe in one line of a terminal: control characters (C0, C1, DEL), line ends, tabs, bidirectional
// overrides, invisible characters and invalid UTF-8 are written as in a Go string, like \x1b, \n or \u202e. Everything else,
// backslashes included, stays as it is.
func Escape(text string) string {
	if IsPlain(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 16)
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case isPlain(r):
			b.WriteRune(r)
		default:
			b.WriteString(escaped(r))
		}
		text = text[size:]
	}
	return b.String()
}

// IsPlain reports whether Escape leaves text as it is.
func IsPlain(text string) bool {
	for i, r := range text {
		if !isPlain(r) {
			return false
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return false
			}
		}
	}
	return true
}

// isPlain reports whether a terminal shows r as a visible character. Hangul fillers and the blank Braille pattern count as letters and
// symbols, but are invisible.
func isPlain(r rune) bool {
	switch r {
	case 0x115f, 0x1160, 0x2800, 0x3164, 0xffa0:
		return false
	}
	return unicode.IsPrint(r)
}

func escaped(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// line is Escape for a line of output: a tab is four spaces, and the line end of Windows is none.
func line(text string) string {
	return Escape(strings.ReplaceAll(strings.TrimSuffix(text, "\r"), "\t", "    "))
}

// SplitLines splits text of several lines, such as the output of a container, into lines that are safe to print.
func SplitLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = line(l)
	}
	return lines
}
