// Package explain guesses what the author of a document meant: misspelled fields, wrong types, short forms of other tools, syntax errors.
// The configuration uses it for its keys, too.
//
// It must not decide whether a document is accepted: it only writes messages and hints.
package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/quantity"
	"monopod/manifests/document"
	"monopod/manifests/schema"
)

// Inspect compares a decoded object with the Go type of a Pod, reports each unknown field and each value of
// a wrong type, and cuts them out of m so that the rest can be decoded.
func Inspect(m map[string]any, it document.Item) []document.Problem {
	return InspectAs(m, it, reflect.TypeFor[corev1.Pod]())
}

// InspectAs does the same for any type of the API.
func InspectAs(m map[string]any, it document.Item, t reflect.Type) []document.Problem {
	in := inspector{source: it.Source, secret: it.Secret, pod: t == reflect.TypeFor[corev1.Pod]()}
	in.value(m, t, it.Prefix)
	return in.found
}

// InspectList does the same for what stands around the items of a list.
func InspectList(m map[string]any, it document.Item) []document.Problem {
	type list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           any `json:"items"`
	}
	in := inspector{source: it.Source, pod: true}
	in.value(m, reflect.TypeFor[list](), it.Prefix)
	return in.found
}

type inspector struct {
	source *document.Source
	found  []document.Problem
	// secret keeps values out of messages.
	secret bool
	// pod is set if the object is a Pod, so that fields of Pods are suggested.
	pod bool
}

// value checks one value and reports whether it may stay.
func (in *inspector) value(v any, t reflect.Type, path string) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil || t.Kind() == reflect.Interface {
		return true
	}
	switch {
	case schema.IsLeaf(t):
		return in.leaf(v, t, path)
	case t.Kind() == reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			return in.wrongType(v, t, path)
		}
		for i := range list {
			if !in.value(list[i], t.Elem(), path+"["+strconv.Itoa(i)+"]") {
				list[i] = nil
			}
		}
		return true
	}
	m, ok := v.(map[string]any)
	if !ok {
		return in.wrongType(v, t, path)
	}
	for _, name := range SortedKeys(m) {
		if !in.entry(m[name], t, path, name) {
			delete(m, name)
		}
	}
	return true
}

// entry checks one field of a struct or one key of a map.
func (in *inspector) entry(v any, t reflect.Type, path, name string) bool {
	if t.Kind() == reflect.Map {
		return in.value(v, t.Elem(), path+"["+name+"]")
	}
	at := name
	if path != "" {
		at = path + "." + name
	}
	for _, f := range schema.Fields(t) {
		if f.Name == name {
			return in.value(v, f.Type, at)
		}
	}
	hint := suggestName(t, name)
	if in.pod {
		hint = suggestField(t, at, name)
	}
	if words := in.source.BooleanKey(name); words != "" {
		hint = words
	}
	in.found = append(in.found, document.Problem{Path: at, Msg: "unknown field", Hint: hint, AtKey: true})
	return false
}

// leaf checks a value by decoding it alone.
func (in *inspector) leaf(v any, t reflect.Type, path string) bool {
	data, err := json.Marshal(v)
	if err == nil {
		err = quantity.Unmarshal(data, reflect.New(t).Interface())
	}
	if err == nil {
		return true
	}
	if t == reflect.TypeFor[resource.Quantity]() {
		in.found = append(in.found, document.Problem{
			Path: path, Msg: fmt.Sprintf("%s is not a quantity", clip(data)), Hint: `write a number with a unit, like 500m, 2 or 128Mi`,
		})
		return false
	}
	if _, isString := v.(string); isString && t.Kind() == reflect.Slice {
		in.found = append(in.found, document.Problem{Path: path, Msg: "it is not in base64", Hint: "encode it with base64, or use a field for plain text"})
		return false
	}
	return in.wrongType(v, t, path)
}

func (in *inspector) wrongType(v any, t reflect.Type, path string) bool {
	p := document.Problem{Path: path, Msg: fmt.Sprintf("expected %s, found %s", expectation(t), Describe(v))}
	if in.secret {
		p.Msg = fmt.Sprintf("expected %s, found something else", expectation(t))
		if t.Kind() == reflect.String && isScalar(v) {
			p.Hint = "put it in quotes"
		}
		in.found = append(in.found, p)
		return false
	}
	_, isString := v.(string)
	switch _, isMap := v.(map[string]any); {
	case t.Kind() == reflect.String && isScalar(v):
		// YAML reads words like y, on and 010 as something else: quote what was written.
		p.Hint = fmt.Sprintf("put it in quotes: %q", cmp.Or(in.source.Scalar(path), fmt.Sprint(v)))
	case t.Kind() == reflect.Slice && isMap:
		p.Hint = `start each element with "- "`
	case t.Kind() == reflect.String && isMap:
		p.Hint = "put it in quotes if it is text: a colon followed by a space makes a mapping"
	case isString && (t.Kind() == reflect.Bool || isNumber(v.(string)) && t.Kind() != reflect.Struct && t.Kind() != reflect.Slice):
		p.Hint = "write it without quotes"
	default:
		p.Hint = spelledOut(v, t, path)
	}
	in.found = append(in.found, p)
	return false
}

func isScalar(v any) bool {
	switch v.(type) {
	case bool, int64, float64:
		return true
	}
	return false
}

func isNumber(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}

// Describe returns the type of a value of a document, and the value if it is short.
func Describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		if len(v) > 40 {
			return "a string"
		}
		return fmt.Sprintf("the string %q", v)
	case bool:
		return fmt.Sprintf("%t", v)
	case int64, float64:
		return fmt.Sprintf("the number %v", v)
	case []any:
		return "a list"
	}
	return "a mapping"
}

// expectation names the values that a type accepts.
func expectation(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number (%s)", t.Kind())
	case reflect.Slice:
		return "a list"
	}
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "a time like 2006-01-02T15:04:05Z"
	case reflect.TypeFor[intstr.IntOrString]():
		return "a number or a name"
	}
	return "a mapping"
}

// SortedKeys returns the keys of a mapping in order.
func SortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// clip shortens a value in a message.
func clip(data []byte) string {
	const most = 100
	if len(data) <= most {
		return string(data)
	}
	return string(data[:most]) + "..."
}
