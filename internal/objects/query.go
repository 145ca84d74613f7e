package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"monopod/internal/printer"
)

// wrapped is an expression with or without the braces and the dot of jsonpath.
var wrapped = regexp.MustCompile(`^\{?\.?([^{}]+)\}?$`)

// relaxed completes "metadata.name" and ".metadata.name" to "{.metadata.name}", as kubectl does.
func relaxed(expression string) string {
	if m := wrapped.FindStringSubmatch(expression); m != nil {
		return "{." + m[1] + "}"
	}
	return expression
}

// JSONPath is an expression of -o jsonpath.
type JSONPath struct{ path *jsonpath.JSONPath }

// ParseJSONPath reads an expression; without braces it is a path.
func ParseJSONPath(expression string) (JSONPath, error) {
	j := jsonpath.New("out").AllowMissingKeys(true)
	if !strings.Contains(expression, "{") {
		expression = relaxed(expression)
	}
	if err := j.Parse(expression); err != nil {
		return JSONPath{}, fmt.Errorf("jsonpath %q: %w", expression, err)
	}
	return JSONPath{j}, nil
}

// Text returns what the expression prints of a value. Text of the expression is as it is written; the strings of the value are escaped.
func (j JSONPath) Text(value json.RawMessage) (string, error) {
	var tree any
	if err := json.Unmarshal(value, &tree); err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := j.path.Execute(&out, escapeTree(tree)); err != nil {
		return "", err
	}
	return layout.ReplaceAllStringFunc(out.String(), printer.Escape), nil // keys of maps are not escaped yet
}

// layout is what stands between the line ends and tabs of an expression.
var layout = regexp.MustCompile(`[^\n\t]+`)

// escapeTree escapes the strings of a decoded value; keys stay, so that they can be found.
func escapeTree(tree any) any {
	switch t := tree.(type) {
	case string:
		return printer.Escape(t)
	case []any:
		for i := range t {
			t[i] = escapeTree(t[i])
		}
	case map[string]any:
		for k := range t {
			t[k] = escapeTree(t[k])
		}
	}
	return tree
}

// none stands for an empty cell.
const none = "<none>"

// Columns are those of -o custom-columns.
type Columns struct {
	Titles []string
	paths  []*jsonpath.JSONPath
}

// ParseColumns reads TITLE:PATH,TITLE:PATH.
func ParseColumns(spec string) (Columns, error) {
	var c Columns
	for part := range strings.SplitSeq(spec, ",") {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" || path == "" {
			return c, fmt.Errorf("custom-columns: %q is not TITLE:PATH, for example NAME:.metadata.name", part)
		}
		j := jsonpath.New(title).AllowMissingKeys(true)
		if err := j.Parse(relaxed(path)); err != nil {
			return c, fmt.Errorf("custom-columns %s: %w", title, err)
		}
		c.Titles, c.paths = append(c.Titles, title), append(c.paths, j)
	}
	return c, nil
}

// Row returns the cells of a value.
func (c Columns) Row(value json.RawMessage) ([]string, error) {
	var tree any
	if err := json.Unmarshal(value, &tree); err != nil {
		return nil, err
	}
	var row []string
	for _, p := range c.paths {
		found, err := p.FindResults(tree)
		if err != nil {
			return nil, err
		}
		var texts []string
		for _, results := range found {
			for _, r := range results {
				texts = append(texts, cellText(r))
			}
		}
		if len(texts) == 0 {
			texts = []string{none}
		}
		row = append(row, strings.Join(texts, ","))
	}
	return row, nil
}

func cellText(v reflect.Value) string {
	if !v.IsValid() {
		return none
	}
	switch x := v.Interface().(type) {
	case nil:
		return none
	case map[string]any, []any:
		b, err := json.Marshal(x)
		if err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(v.Interface())
}
