package manifests

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Limits of one input, far beyond what anybody writes for one machine: they are for inputs that are made to fill its
// memory, or its log.
const (
	// maxObjects is how many documents and elements of lists there may be.
	maxObjects = 20_000
	// maxProblems is how many problems are told. After more nothing else is looked at.
	maxProblems = 1_000
	// maxNested is how deep lists may be in lists.
	maxNested = 4
	// maxParts is how many mappings a document may hold, maxOwnParts how many an object of it: what is written as {} takes
	// a kilobyte as a container.
	maxParts    = 1_000_000
	maxOwnParts = 20_000
	// maxSigns is how many values a document in YAML may seem to have. A ConfigMap of 1 MiB with JSON in it has fewer.
	maxSigns = 750_000
)

// What is said of some of them.
const (
	tooManyProblems = "there are more than 1000 problems; what is behind them has not been looked at"
	tooManyObjects  = "there are more than 20000 objects in one input"
	tooDeep         = "it is more than 4 lists deep in lists"
)

// next takes note of one more object, and says whether the input has too much of something to look at more of it.
func (l *loader) next(it item) bool {
	l.objects++
	return l.bearable(it)
}

// bearable says that the input has not too much of anything. The first time that it has is a problem.
func (l *loader) bearable(it item) bool {
	msg, hint := tooManyProblems, ""
	switch {
	case l.over:
		return false
	case len(l.errs) > maxProblems:
	case l.objects > maxObjects:
		msg, hint = tooManyObjects, "split it"
	default:
		return true
	}
	l.over = true
	l.errs = append(l.errs[:min(len(l.errs), maxProblems)], &Error{File: l.file, Line: it.doc.line, Msg: msg, Hint: hint})
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

// examine checks a document before it is decoded: how much memory a parser needs for its values, and what its aliases
// stand for: *a is two bytes, and may stand for megabytes. size is the sum of that so far.
func examine(d document, size *int) error {
	switch {
	case d.json:
		return nil
	case signs(d.data) > maxSigns:
		return fmt.Errorf("one document has more than %d lines, commas and brackets; split it, or write it as JSON", maxSigns)
	case !mayAlias(d.data):
		return nil
	}
	var n yaml.Node
	if yaml.Unmarshal(d.data, &n) != nil {
		return nil // the decoder says what is wrong, if it finds so too; it does not follow aliases without end
	}
	u := unfolder{}
	if *size += u.size(&n); *size > MaxSize {
		return fmt.Errorf("its aliases stand for more than %d MiB", MaxSize>>20)
	}
	return nil
}

// signs counts what can begin a value in YAML, in a document that is large enough to have many: a parser takes half a
// kilobyte for each.
func signs(data []byte) int {
	if len(data) <= maxSigns {
		return 0
	}
	n := 0
	for i, c := range data {
		switch c {
		case '\n', '\r', ',', '[', '{':
			n++
		case '-', '?':
			if i+1 < len(data) && data[i+1] == ' ' {
				n++
			}
		}
	}
	return n
}

// mayAlias says that there is something like an anchor, and like an alias.
func mayAlias(data []byte) bool { return named(data, '&') && named(data, '*') }

// named says that a sign stands somewhere with a name behind it.
func named(data []byte, sign byte) bool {
	for {
		i := bytes.IndexByte(data, sign)
		if i < 0 || i+1 == len(data) {
			return false
		}
		switch c := data[i+1]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '-':
			return true
		}
		data = data[i+1:]
	}
}

// unfolder knows how large the values with an anchor are. Of one that is being looked at, which holds itself, it is 0:
// decoders refuse those.
type unfolder map[*yaml.Node]int

// size is that of a value with its aliases in place, or more than MaxSize.
func (u unfolder) size(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		return u.size(n.Alias)
	}
	if size, known := u[n]; known {
		return size
	}
	if n.Anchor != "" {
		u[n] = 0
	}
	size := len(n.Value) + 1
	for _, c := range n.Content {
		if size += u.size(c); size > MaxSize {
			size = MaxSize + 1
			break
		}
	}
	if n.Anchor != "" {
		u[n] = size
	}
	return size
}
