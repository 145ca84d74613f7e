package fields

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Run is one pod of a row: with all fields, or without one of them.
type Run struct {
	Row *Row
	// Without is the omitted field, "" in the first run.
	Without string
	// Init means that container c is an init container in this run.
	Init bool
	Name string
}

// Want returns the verdict that shows that the field has an effect.
func (r *Run) Want() Verdict {
	if r.Without == "" {
		return Holds
	}
	return Fails
}

// Runs returns the pods of a row; none if another test stands for it.
func (r *Row) Runs() []*Run {
	if r.By != "" {
		return nil
	}
	runs := r.runs(Run{Row: r, Name: r.Name})
	if r.forInit() {
		runs = append(runs, r.runs(Run{Row: r, Name: r.Name + "-init", Init: true})...)
	}
	return runs
}

func (r *Row) runs(first Run) []*Run {
	runs := []*Run{&first}
	for i, f := range r.Fields {
		if !slices.Contains(r.Refused, f) {
			run := first
			run.Without, run.Name = f, fmt.Sprintf("%s-no-%d", first.Name, i+1)
			runs = append(runs, &run)
		}
	}
	return runs
}

// forInit reports whether the row applies to an init container as well.
func (r *Row) forInit() bool {
	for _, f := range r.Fields {
		if !strings.HasPrefix(f, "spec.containers[].") {
			return false
		}
	}
	return r.Script != "" && len(r.Holds) == 0 && r.Edit == nil && !r.Remove && r.Spec["initContainers"] == nil
}

// path returns the path of a field in this run.
func (r *Run) path(field string) string {
	if rest, ok := strings.CutPrefix(field, "spec.containers[]"); ok && r.Init {
		return "spec.initContainers[]" + rest
	}
	return field
}

// RefusedRuns returns the runs that every agent refuses.
func (r *Row) RefusedRuns() []*Run {
	var runs []*Run
	for _, f := range r.Refused {
		runs = append(runs, &Run{Row: r, Without: f, Name: r.Name + "-refused"})
	}
	return runs
}

// Words replace the words of a row's texts.
type Words map[string]string

func (w Words) in(text string) string {
	// Longest first, because PORT is a prefix of PORT2.
	keys := slices.SortedFunc(maps.Keys(w), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, k := range keys {
		pairs = append(pairs, k, w[k])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// value replaces words in a value of any kind; a word that is replaced by a number becomes a number.
func (w Words) value(v any) (any, error) {
	b, err := yaml.Marshal(v)
	if err != nil {
		return nil, err
	}
	return parse[any](w.in(string(b)))
}

// Manifest returns the file of a run; edited applies the row's Edit.
func (r *Run) Manifest(w Words, edited bool) (string, error) {
	w = maps.Clone(w)
	w["NAME"] = r.Name
	pod, err := r.Row.compose(w)
	if err != nil {
		return "", fmt.Errorf("row %s: %w", r.Row.Name, err)
	}
	if edited {
		for _, field := range slices.Sorted(maps.Keys(r.Row.Edit)) {
			if err := change(pod, field, r.Row.Edit[field], w); err != nil {
				return "", fmt.Errorf("row %s: edit: %w", r.Row.Name, err)
			}
		}
	}
	if r.Init {
		spec := pod["spec"].(map[string]any)
		all := spec["containers"].([]any)
		main := map[string]any{"name": "main", "image": w["IMAGE"], "command": []any{"true"}}
		spec["initContainers"], spec["containers"] = all[:1:1], append(all[1:], main)
	}
	if r.Without != "" {
		if err := r.takeOut(pod, w); err != nil {
			return "", fmt.Errorf("row %s: %w", r.Row.Name, err)
		}
	}
	b, err := yaml.Marshal(pod)
	if err != nil {
		return "", err
	}
	text := string(b)
	if r.Row.Objects != "" {
		text += "---\n" + w.in(r.Row.Objects)
	}
	return text, nil
}

func (r *Run) takeOut(pod map[string]any, w Words) error {
	if value, ok := r.Row.Otherwise[r.Without]; ok {
		return change(pod, r.path(r.Without), value, w)
	}
	path := r.path(r.Without)
	if cut, ok := r.Row.Cut[r.Without]; ok {
		path = r.path(cut)
	}
	if visit(pod, split(path), func(m map[string]any, key string) { delete(m, key) }) == 0 {
		return fmt.Errorf("the pod has no %s", path)
	}
	return nil
}

// change sets a field to another value, wherever it exists or could exist.
func change(pod map[string]any, field string, value any, w Words) error {
	value, err := w.value(value)
	if err != nil {
		return err
	}
	path := split(field)
	set := func(m map[string]any, key string) { m[key] = value }
	if visit(pod, path, set) > 0 {
		return nil
	}
	last := len(path) - 1
	if visit(pod, path[:last], func(m map[string]any, key string) {
		if in, ok := m[key].(map[string]any); ok {
			set(in, path[last])
		}
	}) == 0 {
		return fmt.Errorf("the pod has no %s", field)
	}
	return nil
}

// compose returns the pod of a row.
func (r *Row) compose(w Words) (map[string]any, error) {
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": merge(map[string]any{"name": w["NAME"], "labels": map[string]any{"row": w["NAME"]}}, r.Meta),
		"spec":     merge(map[string]any{"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}, r.Spec),
	}
	if r.Script != "" || r.Container != nil {
		c := map[string]any{"name": "c", "image": w["IMAGE"]}
		if r.Script != "" {
			c["command"] = []any{"sh", "-ec", r.Script}
		}
		spec := pod["spec"].(map[string]any)
		others, _ := spec["containers"].([]any)
		spec["containers"] = append([]any{merge(c, r.Container)}, others...)
	}
	replaced, err := w.value(pod)
	if err != nil {
		return nil, err
	}
	return replaced.(map[string]any), nil
}

func merge(base, over map[string]any) map[string]any {
	maps.Copy(base, over)
	return base
}

// parse parses YAML; an empty text gives an empty map.
func parse[T any](text string) (T, error) {
	var v T
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return v, err
	}
	if m, ok := any(&v).(*map[string]any); ok && *m == nil {
		*m = map[string]any{}
	}
	return v, nil
}

// split splits a path into names, "[]" and "{key}". The last element is always a name or a key, even for a list or a map.
func split(path string) []string {
	var parts []string
	for path != "" {
		path = strings.TrimPrefix(path, ".")
		n := strings.IndexAny(path, ".[{")
		switch {
		case n < 0:
			n = len(path)
		case n == 0 && path[0] == '{':
			n = strings.IndexByte(path, '}') + 1
		case n == 0:
			n = len("[]")
		}
		parts = append(parts, path[:n])
		path = path[n:]
	}
	if last := len(parts) - 1; parts[last] == "[]" || parts[last] == "{}" {
		parts = parts[:last]
	}
	return parts
}

// visit calls do for each existing place of a path and returns their number.
func visit(at any, path []string, do func(m map[string]any, key string)) int {
	n := 0
	if path[0] == "[]" {
		list, _ := at.([]any)
		for _, e := range list {
			n += visit(e, path[1:], do)
		}
		return n
	}
	m, _ := at.(map[string]any)
	for _, key := range keysOf(m, path[0]) {
		if len(path) > 1 {
			n += visit(m[key], path[1:], do)
			continue
		}
		do(m, key)
		n++
	}
	return n
}

// keysOf returns the keys of a map that match a part of a path.
func keysOf(m map[string]any, part string) []string {
	key, isKey := strings.CutPrefix(part, "{")
	key = strings.TrimSuffix(key, "}")
	prefix, isPrefix := strings.CutSuffix(key, "*")
	return slices.Sorted(func(yield func(string) bool) {
		for k := range m {
			ok := k == key
			if isKey {
				ok = ok || isPrefix && strings.HasPrefix(k, prefix) || key == "<vendor>/<class>" && strings.Contains(k, "/")
			}
			if ok && !yield(k) {
				return
			}
		}
	})
}
