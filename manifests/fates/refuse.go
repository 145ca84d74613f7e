package fates

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/explain"
)

// Refusals returns a problem for each field that a manifest sets and this release does not enforce, and a note for each that has no effect
// although its author may rely on it. It must run before defaults are set, which nothing refuses.
func Refusals(pod *corev1.Pod, it document.Item) (found, notes []document.Problem) {
	r := refuser{}
	r.value(podFields(), reflect.ValueOf(pod).Elem(), it.Prefix)
	r.identity(pod, it)
	if manifests.APIAccess(pod.Annotations) != "" {
		r.grantTokens()
	}
	found = make([]document.Problem, len(r.found))
	for i := range r.found {
		found[i] = r.found[i].Problem
	}
	return found, r.notes
}

// grantTokens accepts fields that request tokens.
func (r *refuser) grantTokens() {
	r.found = slices.DeleteFunc(r.found, func(p refusal) bool { return p.line != nil && p.line.note == tokenNote })
	r.notes = slices.DeleteFunc(r.notes, func(p document.Problem) bool { return strings.HasSuffix(p.Path, "spec.automountServiceAccountToken") })
}

type refuser struct {
	found []refusal
	notes []document.Problem
}

// refusal is a problem with the line of the table that it comes from.
type refusal struct {
	document.Problem
	line *fieldFate
}

func (r *refuser) add(line *fieldFate, path, msg, hint string) {
	r.found = append(r.found, refusal{document.Problem{Path: path, Msg: msg, Hint: hint}, line})
}

// value looks at a field with the value it has in the manifest.
func (r *refuser) value(f *fieldNode, v reflect.Value, path string) {
	if !isSet(v) {
		return
	}
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	line := f.fate
	if line != nil && line == f.own && line.remark != "" && !slices.Contains(line.quiet, scalar(v)) {
		r.notes = append(r.notes, document.Problem{Path: path, Msg: line.remark, AtKey: true})
	}
	switch {
	case line != nil && line.fate == refused:
		r.refuse(f, v, path)
	case line != nil && len(f.children) == 0 && !line.allows(v):
		r.add(line, path, fmt.Sprintf("the value %q is %s", scalar(v), notSupported(line.other)), line.hint)
	case line == nil || f.mixed:
		r.below(f, v, path)
	}
}

// refuse reports a refused field once instead of each field below it, unless the table has a more specific line for one of those.
func (r *refuser) refuse(f *fieldNode, v reflect.Value, path string) {
	if f.mixed {
		before := r.found
		r.found = nil
		r.below(f, v, path)
		inner := slices.DeleteFunc(r.found, func(p refusal) bool { return p.line == f.fate })
		r.found = append(before, inner...)
		if len(inner) > 0 {
			return
		}
	}
	r.add(f.fate, path, notSupported(f.fate.note), f.fate.hint)
}

// below looks at the fields below one.
func (r *refuser) below(f *fieldNode, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Struct:
		for _, c := range f.children {
			at := c.name
			if path != "" {
				at = path + "." + c.name
			}
			r.value(c, v.FieldByIndex(c.index), at)
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.value(f.children[0], v.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
	case reflect.Map:
		keys := v.MapKeys()
		sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
		for _, k := range keys {
			c := f.key(k.String())
			r.mapValue(c, v.MapIndex(k), path+"["+k.String()+"]")
		}
	}
}

// mapValue is value for a key of a map: there, being present is being set, whatever the value.
func (r *refuser) mapValue(f *fieldNode, v reflect.Value, path string) {
	if f.fate != nil && f.fate.fate == refused {
		r.add(f.fate, path, notSupported(f.fate.note), f.fate.hint)
		return
	}
	r.value(f, v, path)
}

// isSet reports whether a value differs from an omitted field.
func isSet(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	return !v.IsZero()
}

// notSupported puts the note of a refused field into words.
func notSupported(note string) string {
	return "not supported: " + strings.TrimPrefix(note, "never: ")
}

// scalar is the text of a value in a document.
func scalar(v reflect.Value) string {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if q, ok := reflect.TypeAssert[resource.Quantity](v); ok {
		return q.String()
	}
	return fmt.Sprint(v)
}

// maxUID bounds metadata.uid: it is part of directory names.
const maxUID = 128

// identity refuses what an API server would replace: generated names, and uids that are no names for directories.
func (r *refuser) identity(pod *corev1.Pod, it document.Item) {
	if pod.Name == "" && pod.GenerateName != "" {
		r.add(nil, it.Path("metadata.generateName"), "monopod does not generate names", "write metadata.name")
	}
	uid := string(pod.UID)
	isName := !strings.ContainsFunc(uid, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", c)
	})
	if isName && len(uid) <= maxUID && !strings.HasPrefix(uid, ".") {
		return
	}
	r.add(
		nil, it.Path("metadata.uid"), explain.Describe(uid)+" cannot be part of a directory name",
		fmt.Sprintf("use at most %d letters, digits, '-', '_' and '.', or omit the uid", maxUID),
	)
}
