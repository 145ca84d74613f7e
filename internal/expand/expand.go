// Package expand replaces references to variables in the words of a command, as Kubernetes does.
//
// A reference of five bytes stands for a value of any length, so a caller that does not trust the text limits the
// result first (Length), or uses Within.
package expand

import (
	"fmt"
	"strings"
)

// Word replaces $(NAME) by the value of NAME. A name that is not known stays as it is, $$ stands for one $, so
// that $$(NAME) is the text $(NAME); any other $ is just a $.
func Word(s string, vars map[string]string) string { return With(s, in(vars)) }

// With is Word for variables that a function knows.
func With(s string, value func(name string) (string, bool)) string {
	var b strings.Builder
	scan(s, func(text string) bool {
		b.WriteString(text)
		return true
	}, func(name string) bool {
		if v, ok := value(name); ok {
			b.WriteString(v)
		} else {
			b.WriteString("$(" + name + ")")
		}
		return true
	})
	return b.String()
}

// TooLongError reports a text that would have more bytes than allowed once its references are replaced.
type TooLongError struct{ Most int }

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("it has more than %d bytes after its variables are expanded", e.Most)
}

// Within is Word with a limit: if the result would have more than most bytes, it returns a *TooLongError and builds nothing.
func Within(most int, s string, vars map[string]string) (string, error) {
	if Length(s, most, Lengths(vars)) > most {
		return "", &TooLongError{Most: most}
	}
	return Word(s, vars), nil
}

// Lengths returns the argument of Length for variables whose values are known.
func Lengths(vars map[string]string) func(name string) (int, bool) {
	return func(name string) (int, bool) {
		v, ok := vars[name]
		return len(v), ok
	}
}

// Length returns how many bytes With would return, or a number greater than most as soon as it is known to be more.
// It needs only the lengths of the values, and allocates nothing in proportion to the result.
func Length(s string, most int, length func(name string) (int, bool)) int {
	n := 0
	scan(s, func(text string) bool {
		n += len(text)
		return n <= most
	}, func(name string) bool {
		if l, ok := length(name); ok {
			n += l
		} else {
			n += len("$()") + len(name)
		}
		return n <= most
	})
	return n
}

func in(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// scan takes s apart into texts that stay and names of variables, in order, until a function returns false. It reads s
// once, whatever is in it.
func scan(s string, text, reference func(string) bool) {
	end := strings.LastIndexByte(s, ')') // what opens behind it is not closed
	for at := 0; at < len(s); {
		i := strings.IndexByte(s[at:], '$')
		if i < 0 || at+i+1 == len(s) {
			text(s[at:])
			return
		}
		dollar := at + i
		next := dollar + 1
		var more bool
		switch c := s[next]; {
		case c == '$':
			more = text(s[at:next])
			next++
		case c == '(' && next < end:
			size := strings.IndexByte(s[next:], ')')
			more = text(s[at:dollar]) && reference(s[next+1:next+size])
			next += size + 1
		case c == '(':
			next++
			more = text(s[at:next])
		default:
			more = text(s[at:next])
		}
		if !more {
			return
		}
		at = next
	}
}
