package decode

import (
	"monopod/manifests"
	"monopod/manifests/document"
)

// Limits of one input, far above what one machine needs: they protect memory and log against malicious input.
const (
	// maxNested is how deep lists may be in lists.
	maxNested = 4
	// maxParts is how many mappings a document may hold, maxOwnParts how many an object of it: what is written as {} takes
	// a kilobyte as a container.
	maxParts    = 1_000_000
	maxOwnParts = 20_000
)

// Messages shared by some limits.
const (
	tooManyProblems = "there are more than 1000 problems; the rest of the input has not been checked"
	tooManyObjects  = "there are more than 20000 objects in one input"
	tooDeep         = "it has lists nested more than 4 deep"
)

// next counts one more object and reports whether the input is still within its limits.
func (l *loader) next(it document.Item) bool {
	l.objects++
	return l.bearable(it)
}

// bearable reports whether the input is within its limits. The first excess is recorded as a problem.
func (l *loader) bearable(it document.Item) bool {
	msg, hint := tooManyProblems, ""
	switch {
	case l.over:
		return false
	case len(l.errs) > document.MaxProblems:
	case l.objects > document.MaxObjects:
		msg, hint = tooManyObjects, "split it"
	default:
		return true
	}
	l.over = true
	l.errs = append(l.errs[:min(len(l.errs), document.MaxProblems)], &manifests.Error{File: l.file, Line: it.Doc.Line, Msg: msg, Hint: hint})
	return false
}

// parts counts the mappings in JSON, as far as it is large enough to have more than most.
func parts(data []byte, most int) int {
	if len(data) <= 3*most { // {}, is the shortest
		return 0
	}
	n, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '{' && !quoted:
			n++
		}
	}
	return n
}
