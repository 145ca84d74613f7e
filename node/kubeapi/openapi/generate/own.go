package generate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/metricsv1beta1"
	"monopod/node/kubeapi/monopodv1"
)

// ownVersions returns the versions for which Kubernetes has no documents.
func ownVersions() []schema.GroupVersion {
	return []schema.GroupVersion{metricsv1beta1.SchemeGroupVersion, monopodv1.SchemeGroupVersion}
}

func isOwn(gv schema.GroupVersion) bool { return slices.Contains(ownVersions(), gv) }

// ownDocument describes the kinds of a version from their Go types.
func (s Sources) ownDocument(gv schema.GroupVersion) (object, error) {
	m := modeler{schemas: object{}, gv: gv}
	paths := object{}
	for _, k := range kinds.All() {
		if k.GroupVersion() != gv {
			continue
		}
		if m.docs == nil {
			dir := reflect.TypeOf(k.New()).Elem().PkgPath()
			docs, err := fieldDocs(filepath.Join(s.Module, filepath.Base(dir), "types.go"))
			if err != nil {
				return nil, err
			}
			m.docs = docs
		}
		for _, gvk := range []schema.GroupVersionKind{k.GroupVersionKind, k.ListKind()} {
			o, err := kinds.Scheme().New(gvk)
			if err != nil {
				return nil, err
			}
			name := m.add(reflect.TypeOf(o).Elem())
			m.schemas[name].(object)[kindKey] = []any{kindObject(gvk)}
		}
		addPaths(paths, k, m.name(k.Kind), m.name(k.ListKind().Kind))
	}
	return object{
		"openapi": "3.0.0", "info": object{"title": "monopod", "version": "unversioned"}, "paths": paths, "components": object{"schemas": m.schemas},
	}, nil
}

func kindObject(gvk schema.GroupVersionKind) object {
	return object{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// addPaths adds the list and get paths of a kind.
func addPaths(paths object, k *kinds.Kind, one, list string) {
	base := "/apis/" + k.GroupVersion().String() + "/"
	operation := func(action, schema string) object {
		answer := object{"description": "OK", "content": object{"application/json": object{"schema": ref(schema)}, "application/yaml": object{"schema": ref(schema)}}}
		return object{
			"operationId": action + k.Kind, "responses": object{"200": answer}, actionKey: action, kindKey: kindObject(k.GroupVersionKind),
		}
	}
	parameter := func(name string) object {
		return object{"in": "path", "name": name, "required": true, "schema": object{"type": "string", "uniqueItems": true}}
	}
	if !k.Namespaced {
		paths[base+k.Plural] = object{"get": operation("list", list)}
		paths[base+k.Plural+"/{name}"] = object{"get": operation("get", one), "parameters": []any{parameter("name")}}
		return
	}
	everywhere := operation("list", list)
	everywhere["operationId"] = "list" + k.Kind + "ForAllNamespaces"
	paths[base+k.Plural] = object{"get": everywhere}
	base += "namespaces/{namespace}/"
	paths[base+k.Plural] = object{"get": operation("list", list), "parameters": []any{parameter("namespace")}}
	paths[base+k.Plural+"/{name}"] = object{"get": operation("get", one), "parameters": []any{parameter("name"), parameter("namespace")}}
}

// modeler generates schemas from Go types.
type modeler struct {
	gv      schema.GroupVersion
	schemas object
	docs    map[string]string
}

// name returns the name of a schema: with the group reversed, as in Kubernetes.
func (m *modeler) name(kind string) string {
	parts := strings.Split(m.gv.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, m.gv.Version, kind), ".")
}

// add adds the schemas of a struct and its nested structs.
func (m *modeler) add(t reflect.Type) string {
	name := m.name(t.Name())
	if m.schemas[name] != nil {
		return name
	}
	fields, required := object{}, []any{}
	s := object{"type": "object", "properties": fields}
	if doc := m.docs[t.Name()]; doc != "" {
		s["description"] = doc
	}
	m.schemas[name] = s
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options == "inline" {
			fields["apiVersion"], fields["kind"] = object{"type": "string"}, object{"type": "string"}
			continue
		}
		value := m.schema(f.Type)
		if doc := m.docs[t.Name()+"."+f.Name]; doc != "" {
			if value["$ref"] != nil {
				value = object{"allOf": []any{value}}
			}
			value["description"] = doc
		}
		fields[tag] = value
		if !strings.Contains(options, "omitempty") {
			required = append(required, tag)
		}
	}
	if len(required) > 0 {
		s["required"] = required
	}
	return name
}

// schema returns the schema of a type; our own structs are added.
func (m *modeler) schema(t reflect.Type) object {
	switch t.String() {
	case "v1.Time":
		return object{"type": "string", "format": "date-time"}
	case "v1.Duration", "resource.Quantity":
		return object{"type": "string"}
	case "json.RawMessage":
		return object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	case "v1.ObjectMeta", "v1.ListMeta":
		return m.metadata(t)
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Slice:
		return object{"type": "array", "items": m.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": m.schema(t.Elem())}
	case reflect.Struct:
		return ref(m.add(t))
	}
	return object{"type": "string"}
}

// metadata returns a reference to the schema of object or list metadata, with the fields used here.
func (m *modeler) metadata(t reflect.Type) object {
	name := "io.k8s.apimachinery.pkg.apis.meta.v1." + t.Name()
	text, values := object{"type": "string"}, object{"type": "object", "additionalProperties": object{"type": "string"}}
	fields := object{"resourceVersion": text}
	if t.Name() == "ObjectMeta" {
		fields = object{
			"name": text, "namespace": text, "uid": text, "resourceVersion": text, "creationTimestamp": object{"type": "string", "format": "date-time"},
			"labels": values, "annotations": values,
		}
	}
	m.schemas[name] = object{"type": "object", "properties": fields}
	return ref(name)
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// fieldDocs returns the comments of types and fields by Type and Type.Field.
func fieldDocs(file string) (map[string]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			t := s.(*ast.TypeSpec)
			docs[t.Name.Name] = oneLine(g.Doc)
			fields, ok := t.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range fields.Fields.List {
				for _, name := range field.Names {
					docs[t.Name.Name+"."+name.Name] = oneLine(field.Doc)
				}
			}
		}
	}
	return docs, nil
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// addVersion2 adds the schemas of a document of version 3 to one of version 2.
func addVersion2(d, own object) {
	for name, s := range own["components"].(object)["schemas"].(object) {
		if definitions := d["definitions"].(object); definitions[name] == nil {
			undescribe(s)
			definitions[name] = asVersion2(s)
		}
	}
}

// asVersion2 returns a value with the references of version 2.
func asVersion2(v any) any {
	switch v := v.(type) {
	case object:
		if all, ok := v["allOf"].([]any); ok {
			return asVersion2(all[0])
		}
		c := object{}
		for key, inner := range v {
			c[key] = asVersion2(inner)
		}
		return c
	case []any:
		var c []any
		for _, inner := range v {
			c = append(c, asVersion2(inner))
		}
		return c
	case string:
		return strings.Replace(v, "#/components/schemas/", "#/definitions/", 1)
	}
	return v
}
