package managed

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"io"
	"math"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// packed is packedTypes as JSON, gzip. The types of structured-merge-diff themselves can be read from YAML only, which takes 8 MB for a moment.
//
//go:embed schema.json.gz
var packed []byte

// packedType is a schema.TypeDef, or, when nested, a schema.TypeRef: then Name is the name of the referenced type.
type packedType struct {
	Name   string      `json:"n,omitempty"`
	Scalar string      `json:"s,omitempty"`
	List   *packedList `json:"l,omitempty"`
	Map    *packedMap  `json:"m,omitempty"`
	Rel    string      `json:"r,omitempty"`
	Null   bool        `json:"z,omitempty"`
}

type packedList struct {
	Element packedType `json:"e"`
	Rel     string     `json:"r,omitempty"`
	Keys    []string   `json:"k,omitempty"`
}

type packedMap struct {
	Fields  []packedField `json:"f,omitempty"`
	Element packedType    `json:"e,omitzero"`
	Rel     string        `json:"r,omitempty"`
}

type packedField struct {
	Name    string     `json:"n"`
	Type    packedType `json:"t"`
	Default any        `json:"d,omitempty"`
}

func unpack(data []byte) (*typed.Parser, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(zipped, 16<<20))
	if err != nil {
		return nil, err
	}
	var types []packedType
	if err := json.Unmarshal(raw, &types); err != nil {
		return nil, err
	}
	parser := &typed.Parser{}
	for _, t := range types {
		parser.Schema.Types = append(parser.Schema.Types, schema.TypeDef{Name: t.Name, Atom: t.atom()})
	}
	return parser, nil
}

func (t packedType) atom() schema.Atom {
	var a schema.Atom
	if t.Scalar != "" {
		a.Scalar = new(schema.Scalar(t.Scalar))
	}
	if l := t.List; l != nil {
		a.List = &schema.List{ElementType: l.Element.ref(), ElementRelationship: schema.ElementRelationship(l.Rel), Keys: l.Keys}
	}
	if m := t.Map; m != nil {
		a.Map = &schema.Map{ElementType: m.Element.ref(), ElementRelationship: schema.ElementRelationship(m.Rel)}
		for _, f := range m.Fields {
			a.Fields = append(a.Fields, schema.StructField{Name: f.Name, Type: f.Type.ref(), Default: integers(f.Default)})
		}
	}
	return a
}

func (t packedType) ref() schema.TypeRef {
	r := schema.TypeRef{Inlined: t.atom(), Nullable: t.Null}
	if t.Name != "" {
		r.NamedType = new(t.Name)
	}
	if t.Rel != "" {
		r.ElementRelationship = new(schema.ElementRelationship(t.Rel))
	}
	return r
}

// integers converts the floats that JSON decoding produces back to integers.
func integers(value any) any {
	if f, ok := value.(float64); ok && f == math.Trunc(f) {
		return int(f)
	}
	return value
}
