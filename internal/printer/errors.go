package printer

import (
	"errors"
	"strings"
)

// ErrorLines returns the text of an error as lines that are safe to print. Only errors that are put together of several (errors.Join,
// or with a method Lines) have more than one line: a line end in a message is part of it.
func ErrorLines(err error) []string {
	lines := rawLines(err)
	for i, l := range lines {
		lines[i] = Escape(l)
	}
	return lines
}

// rawLines splits an error as it is put together. An error that words its cause differently is one line.
func rawLines(err error) []string {
	if l, ok := err.(interface{ Lines() []string }); ok {
		return l.Lines()
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var lines, texts []string
		for _, e := range many.Unwrap() {
			lines, texts = append(lines, rawLines(e)...), append(texts, e.Error())
		}
		if err.Error() == strings.Join(texts, "\n") {
			return lines
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		if before, ok := strings.CutSuffix(err.Error(), inner.Error()); ok {
			lines := append([]string{}, rawLines(inner)...)
			lines[0] = before + lines[0]
			return lines
		}
	}
	return []string{err.Error()}
}
