package manifests

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// jsonField is a field of a struct as JSON sees it.
type jsonField struct {
	name  string
	typ   reflect.Type
	index []int
}

// fieldsOf keeps what jsonFields has found: a type never changes, and each check of a volume asks.
var fieldsOf sync.Map //nolint:gochecknoglobals // constants that Go cannot write as such

// jsonFields lists the fields of a struct type, those of inlined structs included, in their Go order. Nobody may change them.
func jsonFields(t reflect.Type) []jsonField {
	if known, ok := fieldsOf.Load(t); ok {
		return known.([]jsonField) //nolint:forcetypeassert // nothing else is stored
	}
	fields := slices.Clip(findFields(t))
	fieldsOf.Store(t, fields)
	return fields
}

func findFields(t reflect.Type) []jsonField {
	var fields []jsonField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			for _, inner := range jsonFields(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
		case name == "":
			fields = append(fields, jsonField{name: f.Name, typ: f.Type, index: []int{i}})
		default:
			fields = append(fields, jsonField{name: name, typ: f.Type, index: []int{i}})
		}
	}
	return fields
}

// isLeaf says that a type has no fields of its own in a document: scalars, bytes, and structs that decode
// themselves, like quantities and times.
func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	}
	return true
}
