package document

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Limits of one input, far beyond what one machine needs: they keep a hostile input from filling its memory or its log.
const (
	// MaxObjects limits documents and elements of lists.
	MaxObjects = 20_000
	// MaxProblems limits the problems that are reported. The rest of the input is not examined.
	MaxProblems = 1_000
	// MaxSigns is how many values a document in YAML may seem to have. A ConfigMap of 1 MiB with JSON in it has fewer.
	MaxSigns = 750_000
)

// CheckLimits checks a document before it is decoded: how much memory a parser needs for its values, and what its aliases
// stand for: *a is two bytes, and may stand for megabytes. size is the sum of that so far.
func CheckLimits(d Document, size *int) error {
	switch {
	case d.JSON:
		return nil
	case signs(d.Data) > MaxSigns:
		return fmt.Errorf("one document has more than %d lines, commas and brackets; split it, or write it as JSON", MaxSigns)
	case !mayAlias(d.Data):
		return nil
	}
	var n yaml.Node
	if yaml.Unmarshal(d.Data, &n) != nil {
		return nil // the decoder says what is wrong, if it finds so too; it does not follow aliases without end
	}
	u := unfolder{}
	if *size += u.size(&n); *size > MaxSize {
		return fmt.Errorf("its aliases expand to more than %d MiB", MaxSize>>20)
	}
	return nil
}

// signs counts what can begin a value in YAML, in a document that is large enough to have many: a parser takes half a
// kilobyte for each.
func signs(data []byte) int {
	if len(data) <= MaxSigns {
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

// mayAlias reports whether the data may contain both an anchor and an alias.
func mayAlias(data []byte) bool { return named(data, '&') && named(data, '*') }

// named reports whether a sign is followed by a name anywhere.
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

// MaxSize is the maximal size of one input in bytes, as for a kubelet.
const MaxSize = 10 << 20
