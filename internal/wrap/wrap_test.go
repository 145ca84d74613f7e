package wrap

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{" one  two\nthree ", "one two\n  three"},
		{"four four", "four four"},
		{"ääää ööö", "ääää ööö"},
		{"word-of-sixteen- a", "word-of-sixteen-\n  a"},
	} {
		if got := Text(tt.text, 9, "  "); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// No word is lost, no line is too wide, and no line could take the first word of the next.
func TestTextOfAnyWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.StringMatching(`[a-zä]{1,12}`)).Draw(t, "words"), " ")
		width := rapid.IntRange(1, 30).Draw(t, "width")
		got := Text(text, width, "- ")
		lines := strings.Split(got, "\n")
		if joined := strings.ReplaceAll(got, "\n- ", " "); joined != text {
			t.Fatalf("%q became %q", text, joined)
		}
		for i, line := range lines {
			n := utf8.RuneCountInString(line)
			if n > width && strings.Contains(strings.TrimPrefix(line, "- "), " ") {
				t.Errorf("line %q is wider than %d", line, width)
			}
			if i+1 < len(lines) {
				next, _, _ := strings.Cut(strings.TrimPrefix(lines[i+1], "- "), " ")
				if n+1+utf8.RuneCountInString(next) <= width {
					t.Errorf("line %q has room for %q", line, next)
				}
			}
		}
	})
}
