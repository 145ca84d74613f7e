package generate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/kinds"
)

// Keys of OpenAPI documents.
const (
	kindKey   = "x-kubernetes-group-version-kind"
	actionKey = "x-kubernetes-action"
)

// Prune removes from a document what is not served without inert kinds, as the generated files have it. d is modified.
func Prune(d map[string]any, version2 bool) map[string]any { return prune(d, kinds.Served{}, version2) }

// prune removes everything that is not served from a document of version 3 or 2; version 2 also loses its descriptions.
func prune(d object, served kinds.Served, version2 bool) object {
	paths := d["paths"].(object)
	for path, item := range paths {
		if !pruneItem(served, path, item.(object)) {
			delete(paths, path)
		}
	}
	strip(paths, version2)
	schemas, prefix := d, "#/definitions/"
	key := "definitions"
	if !version2 {
		schemas, prefix, key = d["components"].(object), "#/components/schemas/", "schemas"
		delete(schemas, "securitySchemes")
	}
	delete(d, "security")
	delete(d, "securityDefinitions")
	all := schemas[key].(object)
	if version2 {
		pruneParameters(d)
		strip(d["parameters"], true)
		for _, s := range all {
			undescribe(s)
		}
	}
	schemas[key] = reachable(served, all, prefix, paths, d["parameters"])
	return d
}

// pruneItem removes the methods of a path that are not served; it returns false if none remains.
func pruneItem(served kinds.Served, path string, item object) bool {
	k, sub, named := resourceOf(served, path)
	if k == nil {
		return false
	}
	verbs := k.Verbs
	if sub != "" {
		s := k.Subresource(sub)
		if s == nil {
			return false
		}
		verbs, named = s.Verbs, true
	}
	left := false
	for method := range item {
		if method == "parameters" {
			continue
		}
		if slices.Contains(verbs, verbOf(method, named)) {
			left = true
		} else {
			delete(item, method)
		}
	}
	return left
}

// verbOf returns the verb of a method, which depends on whether the path names an object.
func verbOf(method string, named bool) string {
	switch {
	case method == "post":
		return "create"
	case method == "put":
		return "update"
	case method == "get" && !named:
		return "list"
	case method == "delete" && !named:
		return "deletecollection"
	}
	return method
}

// resourceOf returns the kind of a path, and the name of the subresource.
func resourceOf(served kinds.Served, path string) (k *kinds.Kind, sub string, named bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return nil, "", false
	}
	if len(parts) > 2 && parts[1] == "{namespace}" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		sub = parts[2]
	}
	return served.ByResource(gv.WithResource(parts[0])), sub, len(parts) > 1
}

// strip removes the parts of operations that clients never read, and encodings that are not served.
func strip(v any, version2 bool) {
	switch v := v.(type) {
	case object:
		for _, key := range []string{"application/cbor", "application/cbor-seq", "application/apply-patch+cbor", "401", "tags"} {
			delete(v, key)
		}
		if _, isParameter := v["in"]; isParameter {
			delete(v, "description")
		}
		if _, isText := v["description"].(string); isText && version2 {
			v["description"] = "" // required in operations and responses of version 2
		}
		for _, key := range []string{"consumes", "produces"} {
			if list, ok := v[key].([]any); ok {
				v[key] = slices.DeleteFunc(list, func(t any) bool { return strings.Contains(t.(string), "cbor") })
			}
		}
		for _, inner := range v {
			strip(inner, version2)
		}
	case []any:
		for _, inner := range v {
			strip(inner, version2)
		}
	}
}

// pruneParameters removes the shared parameters that no path refers to.
func pruneParameters(d object) {
	used := map[string]bool{}
	refs(d["paths"], "#/parameters/", used)
	maps.DeleteFunc(d["parameters"].(object), func(name string, _ any) bool { return !used[name] })
}

// undescribe removes the descriptions of a schema and of its fields. A field may itself be called description.
func undescribe(s any) {
	schema, ok := s.(object)
	if !ok {
		return
	}
	if _, isText := schema["description"].(string); isText {
		delete(schema, "description")
	}
	if fields, ok := schema["properties"].(object); ok {
		for _, f := range fields {
			undescribe(f)
		}
	}
	undescribe(schema["items"])
	undescribe(schema["additionalProperties"])
}

// reachable returns the schemas of served kinds, and the schemas reachable from them.
func reachable(served kinds.Served, all object, prefix string, from ...any) object {
	used := map[string]bool{}
	for _, f := range from {
		refs(f, prefix, used)
	}
	for name, s := range all {
		if schema := s.(object); schema[kindKey] != nil && pruneKinds(served, schema) {
			used[name] = true
		}
	}
	kept := object{}
	for len(kept) < len(used) {
		for name := range maps.Clone(used) {
			if kept[name] == nil {
				kept[name] = all[name]
				refs(all[name], prefix, used)
			}
		}
	}
	return kept
}

// pruneKinds removes versions that are not served from a schema, which are many for options; it reports whether the schema is of an object.
func pruneKinds(served kinds.Served, schema object) bool {
	list, isObject := schema[kindKey].([]any), false
	many := len(list) > 1
	list = slices.DeleteFunc(list, func(v any) bool {
		gvk := kindOf(v.(object))
		isObject = isObject || served.ByKind(gvk) != nil
		return many && !slices.Contains(served.GroupVersions(), gvk.GroupVersion())
	})
	schema[kindKey] = list
	return isObject
}

func kindOf(o object) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: o["group"].(string), Version: o["version"].(string), Kind: o["kind"].(string)}
}

// refs collects the names that a value refers to.
func refs(v any, prefix string, into map[string]bool) {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok && strings.HasPrefix(ref, prefix) {
			into[strings.TrimPrefix(ref, prefix)] = true
		}
		for _, inner := range v {
			refs(inner, prefix, into)
		}
	case []any:
		for _, inner := range v {
			refs(inner, prefix, into)
		}
	}
}
