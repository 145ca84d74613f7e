package manifests

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): `)

// syntaxError turns the error of a parser into ours.
func (s *source) syntaxError(err error) *Error {
	e := &Error{File: s.file, Line: s.doc.line, Msg: err.Error()}
	if ok, offset := kjson.SyntaxErrorOffset(err); ok {
		line, column := lineColumn(s.doc.data, int(offset)-1)
		e.Line, e.Column = s.doc.line+line-1, column
	}
	if m := yamlLine.FindStringSubmatch(e.Msg); m != nil {
		n, _ := strconv.Atoi(m[1]) // the expression admits digits only; an overflow leaves the last line
		lines, _ := lineColumn(s.doc.data, len(s.doc.data))
		e.Line = s.doc.line + min(n, lines) - 1
		e.Msg = e.Msg[len(m[0]):]
	}
	e.Msg = strings.TrimPrefix(strings.TrimPrefix(e.Msg, "yaml: "), "json: ")
	s.explainSyntax(e)
	return e
}

// explainSyntax looks for the usual causes of a syntax error.
func (s *source) explainSyntax(e *Error) {
	lines := strings.Split(string(s.doc.data), "\n")
	at := e.Line - s.doc.line
	for _, i := range []int{at, at - 1, at + 1} {
		if i < 0 || i >= len(lines) || s.doc.json {
			continue
		}
		indent := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " \t-"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
			e.Line, e.Column = s.doc.line+i, 1+utf8.RuneCountInString(lines[i][:tab])
			e.Hint = "YAML does not allow tabs for indentation, use spaces"
			return
		}
	}
	switch {
	case strings.Contains(string(s.doc.data), "{{"):
		if e.Line == s.doc.line && e.Column == 0 { // the parser did not say where
			line, column := lineColumn(s.doc.data, strings.Index(string(s.doc.data), "{{"))
			e.Line, e.Column = s.doc.line+line-1, column
		}
		e.Hint = "this looks like a template that nobody has rendered yet"
	case s.doc.json && s.node() != nil:
		e.Hint = `what starts with "{" is read as JSON; put a line --- before it if it is meant as YAML`
	case !s.doc.json:
		at, e.Hint = syntaxAdvice(e.Msg, lines, at)
		e.Line = s.doc.line + at
	}
	if m := keyTwice.FindString(e.Msg); m != "" && e.Hint == "" {
		e.Hint = s.booleanKey(strings.Fields(m)[1])
	}
	if strings.HasPrefix(e.Msg, "invalid map key: ") {
		e.Msg = "a mapping cannot be the name of a field"
	}
}
