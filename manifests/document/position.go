package document

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Source is one document of a file, with the positions of its fields. Finding positions costs a second
// parse, so it is done only when there is something to report.
type Source struct {
	File string
	Doc  Document
	// root is the parsed document, nil before the first question and when it cannot be parsed.
	root   *yaml.Node
	parsed bool
	// twice are the keys that stand twice, nil before the first question.
	twice []Problem
}

// Node returns the root value of the document, nil when there is none.
func (s *Source) Node() *yaml.Node {
	if s.parsed {
		return s.root
	}
	s.parsed = true
	data := s.Doc.Data
	if s.Doc.JSON {
		// JSON may be indented with tabs and may escape halves of characters, YAML may not. Neither change moves
		// anything to another column, and there are no tabs inside of JSON strings.
		data = bytes.ReplaceAll(data, []byte{'\t'}, []byte{' '})
		data = surrogate.ReplaceAll(data, []byte(`\u0041`))
	}
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err == nil && n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		s.root = n.Content[0]
	}
	return s.root
}

var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// Position finds the field of a problem, or the nearest field around it that the document has.
func (s *Source) Position(p Problem) (line, column int) {
	root := s.Node()
	if root == nil {
		return s.Doc.Line, 0
	}
	key, at := find(root, p.Path)
	if key != nil && (p.AtKey || at.Kind != yaml.ScalarNode) {
		at = key
	}
	return s.Doc.Line + at.Line - 1, at.Column
}

// Scalar returns a value as it is written, empty when it is not there or no scalar.
func (s *Source) Scalar(path string) string {
	root := s.Node()
	for path != "" && root != nil {
		_, root, path = child(root, path)
	}
	if root == nil || resolve(root).Kind != yaml.ScalarNode {
		return ""
	}
	return resolve(root).Value
}

// find follows path as far as it goes. It returns the value there and the key that it stands under, which a
// list element has none of.
func find(root *yaml.Node, path string) (key, value *yaml.Node) {
	value = root
	for path != "" {
		k, next, rest := child(value, path)
		if next == nil {
			break
		}
		key, value, path = k, next, rest
	}
	return key, value
}

// child finds the first element of path in a value.
func child(value *yaml.Node, path string) (key, next *yaml.Node, rest string) {
	value = resolve(value)
	name, rest := cutPath(path)
	switch value.Kind {
	case yaml.MappingNode:
		if key, next = entry(value, name); next == nil {
			// Some paths of the API server join keys that have dots in them without brackets.
			rest = ""
			key, next = entry(value, path)
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(value.Content) {
			next = value.Content[i]
		}
	}
	return key, next, rest
}

// cutPath takes the first element off a path like "containers[0].image" or "[0].image".
func cutPath(path string) (name, rest string) {
	if inner, ok := strings.CutPrefix(path, "["); ok {
		name, rest, _ = strings.Cut(inner, "]")
		return name, strings.TrimPrefix(rest, ".")
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, ""
	}
	return path[:end], strings.TrimPrefix(path[end:], ".")
}

// entry finds a key of a mapping, in what it merges too.
func entry(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if k := mapping.Content[i]; k.Tag != "!!merge" && (k.Value == name || isBool(k, name)) {
			key, value = k, mapping.Content[i+1]
		}
	}
	if value != nil {
		return key, value
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Tag != "!!merge" {
			continue
		}
		for _, m := range merged(mapping.Content[i+1]) {
			if key, value = entry(m, name); value != nil {
				return key, value
			}
		}
	}
	return nil, nil
}

// isBool reports whether a key is one of the words that YAML 1.1 reads as the boolean.
func isBool(key *yaml.Node, boolean string) bool {
	words := map[string][]string{"true": {"y", "yes", "on"}, "false": {"n", "no", "off"}}
	return key.Style == 0 && slices.Contains(words[boolean], strings.ToLower(key.Value))
}

// merged returns the mappings that a merge key names.
func merged(n *yaml.Node) []*yaml.Node {
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		return []*yaml.Node{n}
	case yaml.SequenceNode:
		var all []*yaml.Node
		for _, c := range n.Content {
			if c = resolve(c); c.Kind == yaml.MappingNode {
				all = append(all, c)
			}
		}
		return all
	}
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// allDuplicates returns the keys that stand twice in one mapping.
func (s *Source) allDuplicates() []Problem {
	if s.twice == nil {
		s.twice = []Problem{}
		if root := s.Node(); root != nil {
			s.walkDuplicates(root, "", &s.twice)
		}
	}
	return s.twice
}

func (s *Source) walkDuplicates(n *yaml.Node, path string, found *[]Problem) {
	if len(*found) > MaxProblems {
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		first := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := key.Value
			if path != "" {
				at = path + "." + key.Value
			}
			if line, twice := first[key.Value]; twice {
				*found = append(*found, Problem{
					Path: at, Line: s.Doc.Line + key.Line - 1, Column: key.Column,
					Msg:  "duplicate field, already set at line " + strconv.Itoa(s.Doc.Line+line-1),
					Hint: "remove one of them",
				})
			} else {
				first[key.Value] = key.Line
			}
			s.walkDuplicates(n.Content[i+1], at, found)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			s.walkDuplicates(c, path+"["+strconv.Itoa(i)+"]", found)
		}
	}
}
