// Package expand replaces references to variables in the words of a command, as Kubernetes does.
package expand

import "strings"

// Word replaces $(NAME) by the value of NAME. A name that is not known stays as it is, $$ stands for one $, so
// that $$(NAME) is the text $(NAME); any other $ is just a $.
func Word(s string, vars map[string]string) string {
	return With(s, func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	})
}

// With is Word for variables that a function knows.
func With(s string, value func(name string) (string, bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = expandOne(&b, s[i+1:], value)
	}
}

// expandOne writes what a $ followed by s stands for and returns the rest of s.
func expandOne(b *strings.Builder, s string, value func(string) (string, bool)) string {
	if s[0] == '$' {
		b.WriteByte('$')
		return s[1:]
	}
	if s[0] != '(' {
		b.WriteByte('$')
		return s
	}
	name, rest, closed := strings.Cut(s[1:], ")")
	if !closed {
		b.WriteString("$(")
		return s[1:]
	}
	if v, ok := value(name); ok {
		b.WriteString(v)
	} else {
		b.WriteString("$(" + name + ")")
	}
	return rest
}
