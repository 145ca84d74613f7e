package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseConfigFile reads one YAML (or JSON) document strictly. Each problem is reported with its line; valid keys are in the layer
// nevertheless, so that later checks find their problems, too.
func parseConfigFile(path string, b []byte, keys []Key) (layer, Problems) {
	f := &configFile{path: path, dir: filepath.Dir(path), keys: make(map[string]Key, len(keys)), out: layer{}}
	for _, k := range keys {
		f.keys[k.Path] = k
	}
	if len(b) == 0 {
		f.problem(0, Problem{Msg: "the file is empty (0 bytes)", Hint: "restore it, or remove it to run with the defaults"})
		return f.out, f.problems
	}
	root, err := singleDocument(b)
	switch {
	case err != nil:
		line, msg := splitYAMLError(err)
		f.problem(line, Problem{Msg: msg})
	case root == nil: // comments only
	case root.Kind != yaml.MappingNode:
		f.problem(root.Line, Problem{Msg: "not a map of keys and values"})
	default:
		f.mapping("", root)
	}
	return f.out, f.problems
}

// singleDocument returns the root of the only document, or nil if it is empty.
func singleDocument(b []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("yaml: line %d: a second document: a configuration file has one", more.Line)
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return nil, nil
	}
	return doc.Content[0], nil
}

// configFile is one file being read.
type configFile struct {
	path     string
	dir      string
	keys     map[string]Key
	out      layer
	problems Problems
}

func (f *configFile) where(line int) string {
	if line == 0 {
		return f.path
	}
	return fmt.Sprintf("%s:%d", f.path, line)
}

func (f *configFile) problem(line int, p Problem) {
	p.Where = f.where(line)
	f.problems = append(f.problems, p)
}

// mapping reads the keys below prefix, which is empty or ends with a dot.
func (f *configFile) mapping(prefix string, n *yaml.Node) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, val := n.Content[i], resolveAlias(n.Content[i+1])
		path := prefix + name.Value
		if first, dup := seen[name.Value]; dup {
			f.problem(name.Line, Problem{Key: path, Msg: fmt.Sprintf("given twice, first in line %d", first)})
			continue
		}
		seen[name.Value] = name.Line
		f.entry(path, name, val)
	}
}

func (f *configFile) entry(path string, name, val *yaml.Node) {
	key, isKey := f.keys[path]
	section := f.section(path + ".")
	switch {
	case !isKey && len(section) == 0:
		msg, hint := unknownKey(path, f.keys)
		f.problem(name.Line, Problem{Key: path, Msg: msg, Hint: hint})
	case isNull(val):
		for _, k := range append(section, path) {
			if _, ok := f.keys[k]; ok {
				f.out[k] = setting{reset: true, where: f.where(name.Line)}
			}
		}
	case !isKey && val.Kind != yaml.MappingNode:
		f.problem(val.Line, Problem{Key: path, Msg: "expected a map, not " + describeNode(val), Hint: "its keys: " + strings.Join(section, ", ")})
	case !isKey:
		f.mapping(path+".", val)
	case key.Kind == kindSources || key.Kind == kindGraces || key.Kind == kindRules:
		list, problems := mapList(path, entryKeys(key.Kind), val)
		for _, p := range problems {
			f.problem(p.line, p.Problem)
		}
		f.out[path] = setting{value: resolvePaths(key, list, f.dir), where: f.where(name.Line)}
	default:
		value, problem := valueOf(key, val)
		if problem != nil {
			problem.Key = path
			f.problem(val.Line, *problem)
			return
		}
		f.out[path] = setting{value: resolvePaths(key, value, f.dir), where: f.where(name.Line)}
	}
}

// section lists the keys that begin with prefix, in the order of Keys.
func (f *configFile) section(prefix string) []string {
	var out []string
	for _, k := range Keys() {
		if strings.HasPrefix(k.Path, prefix) {
			out = append(out, k.Path)
		}
	}
	return out
}

// valueOf reads a YAML value of the key's kind.
func valueOf(key Key, n *yaml.Node) (any, *Problem) {
	switch key.Kind {
	case kindInt:
		if n.Tag != "!!int" {
			return nil, wrongType(key, n)
		}
		return parseInt(n.Value)
	case kindBool:
		if n.Tag != "!!bool" {
			return nil, wrongType(key, n)
		}
		return parseBool(n.Value)
	case kindNumber:
		if n.Tag != "!!float" && n.Tag != "!!int" {
			return nil, wrongType(key, n)
		}
		return parseNumber(n.Value)
	case kindDuration:
		if n.Tag != "!!str" && n.Tag != "!!int" && n.Tag != "!!float" {
			return nil, wrongType(key, n)
		}
		return parseDuration(n.Value)
	case KindStrings, kindPaths:
		return stringList(key, n)
	case kindHeaders, kindLists:
		return headerMap(key, n)
	case kindPrograms, kindTexts:
		return programMap(key, n)
	case kindGraces, kindRules, kindSources:
		list, problems := mapList(key.Path, entryKeys(key.Kind), n)
		if len(problems) > 0 {
			return nil, &problems[0].Problem
		}
		return list, nil
	default:
		if n.Tag != "!!str" {
			return nil, wrongType(key, n)
		}
		return n.Value, nil
	}
}

func stringList(key Key, n *yaml.Node) (any, *Problem) {
	if n.Kind != yaml.SequenceNode {
		return nil, wrongType(key, n)
	}
	out := []string{}
	for i, item := range n.Content {
		if item = resolveAlias(item); item.Tag != "!!str" {
			return nil, &Problem{Msg: fmt.Sprintf("item %d: expected a string, not %s", i+1, describeNode(item)), Hint: quoteHint(item)}
		}
		out = append(out, item.Value)
	}
	return out, nil
}

func headerMap(key Key, n *yaml.Node) (any, *Problem) {
	if n.Kind != yaml.MappingNode {
		return nil, &Problem{Msg: fmt.Sprintf("expected a %s, not %s", key.Kind, describeKind(n))}
	}
	out := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		values, problem := secretList(resolveAlias(n.Content[i+1]))
		if problem != nil {
			problem.Msg = name + ": " + problem.Msg
			return nil, problem
		}
		out[name] = values
	}
	return out, nil
}

// secretList is stringList without values in its problems.
func secretList(n *yaml.Node) (any, *Problem) {
	if n.Kind != yaml.SequenceNode {
		return nil, &Problem{Msg: fmt.Sprintf("expected a %s, not %s", KindStrings, describeKind(n)), Hint: "write [\"...\"]"}
	}
	out := []string{}
	for i, item := range n.Content {
		if item = resolveAlias(item); item.Tag != "!!str" {
			return nil, &Problem{Msg: fmt.Sprintf("item %d: expected a string, not %s", i+1, describeKind(item)), Hint: "quote it"}
		}
		out = append(out, item.Value)
	}
	return out, nil
}

func programMap(key Key, n *yaml.Node) (any, *Problem) {
	if n.Kind != yaml.MappingNode {
		return nil, wrongType(key, n)
	}
	out := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, resolveAlias(n.Content[i+1])
		if value.Tag != "!!str" {
			return nil, &Problem{Msg: fmt.Sprintf("%s: expected a string, not %s", name, describeNode(value)), Hint: quoteHint(value)}
		}
		out[name] = value.Value
	}
	return out, nil
}

func wrongType(key Key, n *yaml.Node) *Problem {
	p := &Problem{Msg: fmt.Sprintf("expected a %s, not %s", key.Kind, describeNode(n))}
	switch key.Kind {
	case kindInt:
		p.Msg = fmt.Sprintf("expected an %s, not %s", key.Kind, describeNode(n))
	case kindString, kindPath:
		p.Hint = quoteHint(n)
	case KindStrings, kindPaths:
		if n.Tag == "!!str" {
			p.Hint = fmt.Sprintf("write [%s]", n.Value)
		}
	}
	return p
}

func quoteHint(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!str" && n.Tag != "!!null" {
		return fmt.Sprintf("quote it: %q", n.Value)
	}
	return ""
}

func describeNode(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Tag == "!!str":
		return fmt.Sprintf("the string %q", n.Value)
	case n.Tag == "!!bool":
		return "the boolean " + n.Value
	default:
		return "the number " + n.Value
	}
}

// describeKind is describeNode for values that may be secrets.
func describeKind(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		return describeNode(n)
	case n.Tag == "!!str":
		return "a string"
	case n.Tag == "!!bool":
		return "a boolean"
	default:
		return "a number"
	}
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// entryKeys returns the keys of the entries of a list of that kind.
func entryKeys(kind Kind) []Key {
	switch kind {
	case kindGraces:
		return shutdownGraceKeys()
	case kindRules:
		return imageRuleKeys()
	}
	return remoteSourceKeys()
}
