package explain

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"monopod/manifests"
	"monopod/manifests/document"
)

var yamlLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): `) })

// SyntaxError turns the error of a parser into ours.
func SyntaxError(s *document.Source, err error) *manifests.Error {
	e := &manifests.Error{File: s.File, Line: s.Doc.Line, Msg: err.Error()}
	if ok, offset := kjson.SyntaxErrorOffset(err); ok {
		line, column := document.LineColumn(s.Doc.Data, int(offset)-1)
		e.Line, e.Column = s.Doc.Line+line-1, column
	}
	if m := yamlLine().FindStringSubmatch(e.Msg); m != nil {
		n, _ := strconv.Atoi(m[1]) // the expression admits digits only; an overflow leaves the last line
		lines, _ := document.LineColumn(s.Doc.Data, len(s.Doc.Data))
		e.Line = s.Doc.Line + min(n, lines) - 1
		e.Msg = e.Msg[len(m[0]):]
	}
	e.Msg = strings.TrimPrefix(strings.TrimPrefix(e.Msg, "yaml: "), "json: ")
	explainSyntax(s, e)
	return e
}

// explainSyntax looks for the usual causes of a syntax error.
func explainSyntax(s *document.Source, e *manifests.Error) {
	lines := strings.Split(string(s.Doc.Data), "\n")
	at := e.Line - s.Doc.Line
	for _, i := range []int{at, at - 1, at + 1} {
		if i < 0 || i >= len(lines) || s.Doc.JSON {
			continue
		}
		indent := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " \t-"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
			e.Line, e.Column = s.Doc.Line+i, 1+utf8.RuneCountInString(lines[i][:tab])
			e.Hint = "YAML does not allow tabs for indentation, use spaces"
			return
		}
	}
	switch {
	case strings.Contains(string(s.Doc.Data), "{{"):
		if e.Line == s.Doc.Line && e.Column == 0 { // the parser did not say where
			line, column := document.LineColumn(s.Doc.Data, strings.Index(string(s.Doc.Data), "{{"))
			e.Line, e.Column = s.Doc.Line+line-1, column
		}
		e.Hint = "this looks like a template that has not been rendered"
	case s.Doc.JSON && s.Node() != nil:
		e.Hint = `what starts with "{" is read as JSON; put a line --- before it if it is meant as YAML`
	case !s.Doc.JSON:
		at, e.Hint = syntaxAdvice(e.Msg, lines, at)
		e.Line = s.Doc.Line + at
	}
	if m := document.KeyTwice.FindString(e.Msg); m != "" && e.Hint == "" {
		e.Hint = s.BooleanKey(strings.Fields(m)[1])
	}
	if strings.HasPrefix(e.Msg, "unsupported map key of type") { // the message also has the value, which may be secret
		e.Msg, e.Hint = "a key is not a name", "put it in quotes"
		if line, column, written, ok := s.KeyWithoutName(); ok {
			e.Line, e.Column, e.Msg, e.Hint = line, column, fmt.Sprintf("the key %s is not a name", written), fmt.Sprintf("put it in quotes, %q", written)
		}
	}
	if strings.HasPrefix(e.Msg, "invalid map key: ") {
		e.Msg = "a mapping cannot be a key"
	}
}
