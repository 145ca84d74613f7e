package explain

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/schema"
)

// suggestName returns the field of a struct that an unknown name resembles.
func suggestName(t reflect.Type, name string) string {
	names := make([]string, 0, t.NumField())
	for _, f := range schema.Fields(t) {
		names = append(names, f.Name)
	}
	if guess := Nearest(name, names); guess != "" {
		return fmt.Sprintf("did you mean %q?", guess)
	}
	return ""
}

// suggestField returns a suggestion for an unknown field of a struct in a Pod.
func suggestField(t reflect.Type, path, name string) string {
	if hint := suggestName(t, name); hint != "" {
		return hint
	}
	if below := fieldBelow(t, strings.TrimSuffix(path, name), name); below != "" {
		return elsewhere(below)
	}
	if at := findField(name); at != "" && at != indexes().ReplaceAllString(path, "[]") {
		return elsewhere(at)
	}
	for _, f := range schema.Fields(t) {
		if len(name) > 3 && strings.HasPrefix(f.Name, name) {
			return fmt.Sprintf("did you mean %q?", f.Name)
		}
	}
	if t == reflect.TypeFor[corev1.PodSpec]() {
		if hint := suggestField(reflect.TypeFor[corev1.Container](), path, name); strings.HasPrefix(hint, "did") {
			return hint + " That is a field of spec.containers[]"
		}
	}
	return ""
}

// fieldBelow finds a field of this name one level deeper; path ends where the names of fields begin. People leave out httpGet in a probe.
func fieldBelow(t reflect.Type, path, name string) string {
	for _, f := range schema.Fields(t) {
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !schema.IsLeaf(inner) && schema.HasField(inner, name) {
			return path + f.Name + "." + name
		}
	}
	return ""
}

var indexes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[[^]]*\]`) })

// findField finds the place where a field of this name is most likely meant: the outermost one in the
// metadata or spec of a Pod, among equals the one of a container.
func findField(name string) string {
	type level struct {
		path string
		typ  reflect.Type
	}
	now := []level{{"metadata", reflect.TypeFor[corev1.Pod]().Field(1).Type}, {"spec", reflect.TypeFor[corev1.PodSpec]()}}
	for len(now) > 0 {
		best := ""
		var below []level
		for _, l := range now {
			for _, f := range schema.Fields(l.typ) {
				path := l.path + "." + f.Name
				if f.Name == name && (best == "" || strings.HasPrefix(path, "spec.containers[]")) {
					best = path
				}
				if t, suffix := element(f.Type); t.Kind() == reflect.Struct && !schema.IsLeaf(t) {
					below = append(below, level{path + suffix, t})
				}
			}
		}
		if best != "" {
			return best
		}
		now = below
	}
	return ""
}

// element strips pointers, slices and maps off a type.
func element(t reflect.Type) (elem reflect.Type, suffix string) {
	for {
		switch t.Kind() {
		case reflect.Pointer:
			t = t.Elem()
		case reflect.Slice, reflect.Map:
			t = t.Elem()
			suffix += "[]"
		default:
			return t, suffix
		}
	}
}

// Nearest returns the candidate that a typing mistake may have turned into name, or nothing.
func Nearest(name string, candidates []string) string {
	best, limit := "", max(1, len(name)/3)+1
	for _, c := range candidates {
		if strings.EqualFold(c, name) {
			return c
		}
		if d := EditDistance(strings.ToLower(name), strings.ToLower(c)); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// EditDistance counts the letters to insert, delete, replace or swap with the next one. Of names with more than 64 letters it compares
// no letters.
func EditDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := range len(a) {
		before, above, row := rows[0], rows[1], rows[2]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above[j+1]+1, row[j]+1, above[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		rows[0], rows[1], rows[2] = above, row, before
	}
	return rows[1][len(b)]
}
