package document

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"monopod/manifests"
)

// ForeignSpace finds a space that YAML does not take for one, where one belongs: in the indentation, or behind a dash or a colon.
// Text that was copied from a web page has such spaces.
var ForeignSpace = regexp.MustCompile(`(?m)^[ \t]*(?:- +)*-?(?:[\w./-]+:)?([\x{A0}\x{2000}-\x{200B}\x{202F}\x{205F}\x{3000}])`)

// IsForeignSpace reports whether ForeignSpace looks for a character.
func IsForeignSpace(r rune) bool {
	return r == 0xA0 || 0x2000 <= r && r <= 0x200B || r == 0x202F || r == 0x205F || r == 0x3000
}

// ForeignSpaceError reports the first such space; nil if the document has none.
func (s *Source) ForeignSpaceError() *manifests.Error {
	if s.Doc.JSON || !bytes.ContainsFunc(s.Doc.Data, IsForeignSpace) { // which needs no look at each line
		return nil
	}
	at := ForeignSpace.FindSubmatchIndex(s.Doc.Data)
	if at == nil {
		return nil
	}
	line, column := LineColumn(s.Doc.Data, at[2])
	r, _ := utf8.DecodeRune(s.Doc.Data[at[2]:])
	return &manifests.Error{
		File: s.File, Line: s.Doc.Line + line - 1, Column: column,
		Msg:  fmt.Sprintf("the character U+%04X looks like a space, but is not one for YAML", r),
		Hint: "replace it with a space; such characters are often copied from web pages",
	}
}

// BooleanKey returns how to write a key that YAML 1.1 reads as true or false, such as on; empty if the document has none.
func (s *Source) BooleanKey(name string) string {
	if name != "true" && name != "false" {
		return ""
	}
	written := ""
	var find func(n *yaml.Node)
	find = func(n *yaml.Node) {
		for i, c := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 && isBool(c, name) {
				written = c.Value
			}
			find(c)
		}
	}
	if root := s.Node(); root != nil && !s.Doc.JSON {
		find(root)
	}
	if written == "" {
		return ""
	}
	return fmt.Sprintf("YAML reads the key %s as %s: put it in quotes, %q", written, name, written)
}

// KeyTwice matches the error of the YAML library about a key that stands twice in one mapping.
var KeyTwice = regexp.MustCompile(`key (?:"[^"]*"|true|false) already set in map`)

// StrictJSON converts the document. A key that stands beside a merge key which brings it, too, is no duplicate.
func (s *Source) StrictJSON() ([]byte, error) {
	data, err := sigsyaml.YAMLToJSONStrict(s.Doc.Data)
	if err == nil || !KeyTwice.MatchString(err.Error()) || len(s.allDuplicates()) > 0 {
		return data, err
	}
	if _, broken := sigsyaml.YAMLToJSON(s.Doc.Data); broken != nil { // a value that holds itself, for instance
		return data, err
	}
	if whole, ok := s.withMerged(); ok {
		return sigsyaml.YAMLToJSONStrict(whole)
	}
	return data, err
}

// withMerged returns the document with its merge keys (<<) expanded. The keys of the mapping itself take precedence, wherever they stand.
func (s *Source) withMerged() ([]byte, bool) {
	root := s.Node()
	if root == nil || !strings.Contains(string(s.Doc.Data), "<<") {
		return nil, false
	}
	data, err := yaml.Marshal(mergeKeys(root, map[*yaml.Node]*yaml.Node{}))
	return data, err == nil && len(data) <= MaxSize
}

// mergeKeys copies a value. Aliases are followed: examine has bounded what they stand for.
func mergeKeys(n *yaml.Node, done map[*yaml.Node]*yaml.Node) *yaml.Node {
	n = resolve(n)
	if c := done[n]; c != nil {
		return c
	}
	c := *n
	c.Anchor, c.Content = "", nil
	done[n] = &c
	if n.Kind != yaml.MappingNode {
		for _, inner := range n.Content {
			c.Content = append(c.Content, mergeKeys(inner, done))
		}
		return &c
	}
	has := map[string]bool{}
	add := func(from *yaml.Node, own bool) {
		for i := 0; i+1 < len(from.Content); i += 2 {
			if k := from.Content[i]; k.Tag != "!!merge" && (own || !has[k.Value]) {
				has[k.Value] = true
				c.Content = append(c.Content, mergeKeys(k, done), mergeKeys(from.Content[i+1], done))
			}
		}
	}
	add(n, true)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		for _, m := range merged(n.Content[i+1]) {
			add(mergeKeys(m, done), false)
		}
	}
	return &c
}
