// Package schema lists the fields of the Go types of the Kubernetes API as they are named in documents.
//
// It must not know what any field means.
package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Field is a field of a struct as JSON sees it.
type Field struct {
	Name  string
	Type  reflect.Type
	Index []int
}

// fieldsOf keeps what findFields has found: a type never changes, and each check of a volume asks.
var fieldsOf sync.Map //nolint:gochecknoglobals // constants that Go cannot write as such

// Fields lists the fields of a struct type, including those of inlined structs, in their Go order. The caller must not change the result.
func Fields(t reflect.Type) []Field {
	if known, ok := fieldsOf.Load(t); ok {
		return known.([]Field) //nolint:forcetypeassert // nothing else is stored
	}
	fields := slices.Clip(findFields(t))
	fieldsOf.Store(t, fields)
	return fields
}

func findFields(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			for _, inner := range Fields(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				fields = append(fields, inner)
			}
		case name == "":
			fields = append(fields, Field{Name: f.Name, Type: f.Type, Index: []int{i}})
		default:
			fields = append(fields, Field{Name: name, Type: f.Type, Index: []int{i}})
		}
	}
	return fields
}

// IsLeaf reports whether a type has no fields of its own in a document: scalars, bytes, and structs that decode themselves, such as
// quantities and times.
func IsLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	}
	return true
}

// HasField reports whether a struct has a field of that name in documents.
func HasField(t reflect.Type, name string) bool {
	return slices.ContainsFunc(Fields(t), func(f Field) bool { return f.Name == name })
}
