package golden

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Difference is a difference between two responses.
type Difference struct {
	// Step is the name of the request, Path the location in the response: code, a header, or a path in the body.
	Step, Path string
	// Resource is that of the request, like pods or deployments/scale.
	Resource string
	// Want is the value of Kubernetes, Have that of monopod; nil if absent.
	Want, Have any
}

// Compare returns the differences between two responses to a step.
func Compare(step *Step, want, have *Answer) []Difference {
	c := comparison{step: step.Name, resource: resourceOf(step.Do)}
	if want.Code != have.Code {
		c.add("code", want.Code, have.Code)
		if (want.Code < 400) != (have.Code < 400) {
			c.add("message", brief(want.Body), brief(have.Body))
			return c.found
		}
	}
	c.compare("header", normal("", want.Header), normal("", have.Header))
	c.compare("", normal("", want.Body), normal("", have.Body))
	return c.found
}

// brief is the message of a Status, or nothing.
func brief(body any) any {
	m, _ := body.(map[string]any)
	return m["message"]
}

type comparison struct {
	step, resource string
	found          []Difference
}

func (c *comparison) add(path string, want, have any) {
	c.found = append(c.found, Difference{c.step, path, c.resource, want, have})
}

func (c *comparison) compare(path string, want, have any) {
	a, isMap := want.(map[string]any)
	b, both := have.(map[string]any)
	if isMap && both {
		for _, name := range slices.Sorted(maps.Keys(a)) {
			if _, ok := b[name]; !ok {
				c.add(join(path, name), a[name], nil)
				continue
			}
			c.compare(join(path, name), a[name], b[name])
		}
		for _, name := range slices.Sorted(maps.Keys(b)) {
			if _, ok := a[name]; !ok {
				c.add(join(path, name), nil, b[name])
			}
		}
		return
	}
	x, isList := want.([]any)
	y, both := have.([]any)
	if isList && both {
		c.lists(path, x, y)
		return
	}
	if reflect.DeepEqual(want, have) || loose(path) && alike(want, have) {
		return
	}
	c.add(path, want, have)
}

// lists compares elements with the same key, regardless of their order.
func (c *comparison) lists(path string, want, have []any) {
	a, b := keyed(path, want), keyed(path, have)
	for _, e := range a {
		other := find(b, e.key)
		if other == nil {
			c.add(path+"["+e.key+"]", e.value, nil)
			continue
		}
		c.compare(path+"["+e.key+"]", e.value, other.value)
	}
	for _, e := range b {
		if find(a, e.key) == nil {
			c.add(path+"["+e.key+"]", nil, e.value)
		}
	}
}

type element struct {
	key   string
	value any
}

func find(list []element, key string) *element {
	if i := slices.IndexFunc(list, func(e element) bool { return e.key == key }); i >= 0 {
		return &list[i]
	}
	return nil
}

// keyed returns the elements with their keys.
func keyed(path string, list []any) []element {
	var all []element
	for i, value := range list {
		key := keyOf(path, value)
		if key == "" {
			key = strconv.Itoa(i)
		}
		for find(all, key) != nil {
			key += "+"
		}
		all = append(all, element{key, value})
	}
	return all
}

func keyOf(path string, value any) string {
	if strings.HasSuffix(path, "finalizers") || strings.HasSuffix(path, "verbs") || strings.HasSuffix(path, "shortNames") {
		return fmt.Sprint(value)
	}
	m, ok := value.(map[string]any)
	if !ok || path == "" { // watch events are ordered
		return ""
	}
	if meta, ok := m["metadata"].(map[string]any); ok && meta["name"] != nil {
		return fmt.Sprint(meta["name"])
	}
	if object, ok := m["object"].(map[string]any); ok {
		return keyOf(path, object)
	}
	if m["manager"] != nil {
		return strings.TrimSpace(fmt.Sprint(m["manager"], " ", m["operation"], " ", orEmpty(m["subresource"])))
	}
	if m["reason"] != nil && m["field"] != nil {
		return fmt.Sprint(m["field"], " ", m["reason"])
	}
	for _, name := range []string{"name", "type", "resource", "subresource", "groupVersion", "version", "key"} {
		if text, ok := m[name].(string); ok && text != "" {
			return text
		}
	}
	return ""
}

func orEmpty(v any) string {
	s, _ := v.(string)
	return s
}

func join(path, name string) string {
	if strings.ContainsAny(name, "./") && path != "header" {
		name = "'" + name + "'"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// loose reports whether texts at a path need only be similar.
func loose(path string) bool {
	return path == "message" || strings.HasSuffix(path, ".message") || strings.HasPrefix(path, "header.Warning") ||
		strings.HasSuffix(path, ".description")
}

var word = regexp.MustCompile(`[A-Za-z]{3,}`)

// alike reports whether half of the words of one text occur in the other.
func alike(want, have any) bool {
	a, ok := want.(string)
	b, both := have.(string)
	if !ok || !both {
		return false
	}
	words, found := word.FindAllString(strings.ToLower(a), -1), 0
	in := strings.ToLower(b)
	for _, w := range words {
		if strings.Contains(in, w) {
			found++
		}
	}
	return 2*found >= len(words)
}

var (
	uid     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	moment  = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	age     = regexp.MustCompile(`^(\d+[smhd]){1,2}( ago)?$`)
	address = regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+$`)
	jwt     = regexp.MustCompile(`^eyJ[\w-]+\.[\w-]+\.[\w-]+$`)
	port    = regexp.MustCompile(`:3\d{4}/`)
	server  = regexp.MustCompile(`^https://127\.0\.0\.1:\d+/`)
	hash    = regexp.MustCompile(`\bhash=[0-9A-F]+`)
)

// revision is the annotation of the deployment controller, which does not run beside the kube-apiserver that answers are compared with.
const revision = "deployment.kubernetes.io/revision"

// normal replaces values that differ between runs.
func normal(name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, below := range v {
			out[key] = normal(key, below)
		}
		if annotations, ok := out["annotations"].(map[string]any); ok && annotations[revision] != nil {
			if delete(annotations, revision); len(annotations) == 0 {
				delete(out, "annotations")
			}
		}
		prefix, _ := v["generateName"].(string)
		if text, ok := v["name"].(string); ok && prefix != "" && strings.HasPrefix(text, prefix) {
			out["name"] = prefix + "*"
		}
		return out
	case []any:
		out := []any{}
		for _, below := range v {
			out = append(out, normal(name, below))
		}
		return out
	case float64:
		if name == "nodePort" || name == "healthCheckNodePort" {
			return "PORT"
		}
	case string:
		return normalText(name, v)
	}
	return value
}

// normalText is normal for a text.
func normalText(name, v string) string {
	switch {
	case name == "resourceVersion" && v != "" && v != "0":
		return "REVISION"
	case name == "continue" && v != "":
		return "TOKEN"
	case jwt.MatchString(v):
		return "TOKEN"
	case moment.MatchString(v):
		return "TIME"
	case age.MatchString(v):
		return "AGE"
	case address.MatchString(v) && v != "127.0.0.1":
		return "ADDRESS"
	case name == "jwks_uri":
		return server.ReplaceAllString(v, "https://127.0.0.1:PORT/")
	}
	return port.ReplaceAllString(hash.ReplaceAllString(uid.ReplaceAllString(v, "UID"), "hash=HASH"), ":PORT/")
}
