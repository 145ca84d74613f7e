package document

import (
	"encoding/json"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// oddName matches what YAML 1.1 may read as something else than text: numbers, dates, and words for true, false and null.
const oddName = `[-+]?\.?[0-9][\w.+:-]*|[-+]?\.(?:inf|nan)|y|n|yes|no|on|off|true|false|null|~|`

var (
	oddKeys = regexp.MustCompile(`(?mi)(?:^|[\s{,])(?:` + oddName + `)[ \t]*:(?:[ \t\r\n]|$)`)
	oddKey  = regexp.MustCompile(`^(?i:` + oddName + `)$`)
)

// readAs returns the name that YAML makes of a key as it is written; ok is false for one that is no name, like null.
func readAs(written string) (name string, ok bool) {
	if !oddKey.MatchString(written) {
		return written, true
	}
	data, err := sigsyaml.YAMLToJSON([]byte(written + ": 0"))
	var m map[string]any
	if err != nil || json.Unmarshal(data, &m) != nil {
		return "", false
	}
	for name = range m {
		return name, true
	}
	return "", false
}

// eachKey calls f for each key without quotes and tags at or below a value, once.
func eachKey(n *yaml.Node, path string, f func(path string, key *yaml.Node), seen map[*yaml.Node]bool) {
	n = resolve(n)
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			eachKey(c, fmt.Sprintf("%s[%d]", path, i), f, seen)
		case n.Kind == yaml.MappingNode && i%2 == 0 && i+1 < len(n.Content):
			if c.Kind == yaml.ScalarNode && c.Style == 0 {
				f(path, c)
			}
			below := c.Value
			if path != "" {
				below = path + "." + c.Value
			}
			eachKey(n.Content[i+1], below, f, seen)
		}
	}
}

// RenamedKeys notes the keys of the object that are not what was written: on has become true, 1.10 has become 1.1, and 012 is 10.
func (it Item) RenamedKeys() []Problem {
	if it.Doc.JSON || !oddKeys.Match(it.Doc.Data) || it.Node() == nil { // most documents need no second parse
		return nil
	}
	var found []Problem
	_, root := find(it.Node(), it.Prefix)
	eachKey(root, it.Prefix, func(path string, key *yaml.Node) {
		if name, ok := readAs(key.Value); ok && name != key.Value {
			at := Problem{Path: path + "[" + name + "]", Line: it.Doc.Line + key.Line - 1, Column: key.Column}
			at.Msg = fmt.Sprintf("YAML reads the key %s as %s: put it in quotes, %q", key.Value, name, key.Value)
			found = append(found, at)
		}
	}, map[*yaml.Node]bool{})
	return found
}

// KeyWithoutName returns the place of the first key that is no name, like null; ok is false if there is none.
func (s *Source) KeyWithoutName() (line, column int, written string, ok bool) {
	if root := s.Node(); root != nil {
		eachKey(root, "", func(_ string, key *yaml.Node) {
			if _, isName := readAs(key.Value); !isName && !ok {
				line, column, written, ok = s.Doc.Line+key.Line-1, key.Column, key.Value, true
			}
		}, map[*yaml.Node]bool{})
	}
	return line, column, written, ok
}
