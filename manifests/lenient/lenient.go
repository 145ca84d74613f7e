// Package lenient accepts what podman accepts and Kubernetes refuses, where it is unambiguous: numbers as text, protocols in lower case,
// podman's pull policies, containers without a name, workloads without a selector, stop signals without an operating system.
//
// It is pure. It must not validate: it rewrites a document, and the caller validates the result.
package lenient

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Change is something that was read otherwise than it is written.
type Change struct {
	// Path is that of the field, from the root of the object.
	Path string
	Msg  string
}

// maxScalars bounds the numbers of one object that are read as text: each costs a search in the document.
const maxScalars = 100

// Rewrite changes an object of a kind in place. Returns the first change of each sort, with the number of further ones. written returns the
// scalar at a path as the document has it. Numbers beyond maxScalars are left unchanged.
func Rewrite(m map[string]any, kind string, written func(path string) string) []Change {
	r := rewriter{written: written, left: maxScalars, sorts: map[sort]int{}}
	switch kind {
	case "ConfigMap":
		r.texts(m, "data")
	case "Secret":
		r.texts(m, "stringData")
	default:
		r.meta(m, "")
		r.workload(m, kind)
	}
	for s, i := range r.sorts {
		if n := r.more[s]; n > 0 {
			r.changes[i].Msg += fmt.Sprintf(" (and %d more)", n)
		}
	}
	return r.changes
}

// sort classifies changes; only the first of each sort is reported.
type sort int

const (
	number sort = iota
	protocol
	pullPolicy
	container
	selector
	system
)

type rewriter struct {
	written func(path string) string
	left    int
	changes []Change
	sorts   map[sort]int
	more    [system + 1]int
}

func (r *rewriter) changed(s sort, path, msg string) {
	if _, known := r.sorts[s]; known {
		r.more[s]++
		return
	}
	r.sorts[s] = len(r.changes)
	r.changes = append(r.changes, Change{path, msg})
}

// workload rewrites the pod of a document, or of its template.
func (r *rewriter) workload(m map[string]any, kind string) {
	owner, at := m, ""
	if kind == "CronJob" {
		owner, at = inner(m, "spec", "jobTemplate"), "spec.jobTemplate."
		r.meta(owner, at)
	}
	if kind == "Pod" {
		r.pod(inner(m, "spec"), "spec.")
		return
	}
	template := inner(owner, "spec", "template")
	r.meta(template, at+"spec.template.")
	r.pod(inner(template, "spec"), at+"spec.template.spec.")
	r.selector(inner(owner, "spec"), inner(template, "metadata", "labels"), kind)
}

// selector gives a workload the labels of its template to select by, as Kubernetes did before apps/v1.
func (r *rewriter) selector(spec, labels map[string]any, kind string) {
	if !slices.Contains([]string{"Deployment", "DaemonSet", "ReplicaSet", "StatefulSet"}, kind) || spec == nil || spec["selector"] != nil || len(labels) == 0 {
		if s, ok := spec["selector"].(map[string]any); ok {
			r.texts(s, "spec.selector.", "matchLabels")
		}
		return
	}
	spec["selector"] = map[string]any{"matchLabels": maps.Clone(labels)}
	r.changed(selector, "spec.selector", "it is missing: the labels of the template are used")
}

func (r *rewriter) meta(m map[string]any, at string) {
	meta := inner(m, "metadata")
	r.texts(meta, at+"metadata.", "labels", "annotations")
}

func (r *rewriter) pod(spec map[string]any, at string) {
	if spec == nil {
		return
	}
	names := map[string]bool{}
	var all []map[string]any
	var paths []string
	for _, list := range []string{"initContainers", "containers"} {
		elements, _ := spec[list].([]any)
		for i, e := range elements {
			c, ok := e.(map[string]any)
			if !ok {
				continue
			}
			if name, ok := c["name"].(string); ok {
				names[name] = true
			}
			all, paths = append(all, c), append(paths, fmt.Sprintf("%s%s[%d].", at, list, i))
		}
	}
	for i, c := range all {
		r.name(c, paths[i], names)
		r.container(c, paths[i])
		if _, ok := inner(c, "lifecycle")["stopSignal"].(string); ok && spec["os"] == nil {
			spec["os"] = map[string]any{"name": "linux"}
			r.changed(system, at+"os", "it is missing beside stopSignal: linux is used")
		}
	}
}

// name calls a container that has no name like its image, if no other is called so.
func (r *rewriter) name(c map[string]any, at string, taken map[string]bool) {
	if was := c["name"]; was != nil && was != "" {
		return
	}
	image, _ := c["image"].(string)
	name := image[strings.LastIndexByte(image, '/')+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	if taken[name] || len(validation.IsDNS1123Label(name)) > 0 {
		return
	}
	taken[name] = true
	c["name"] = name
	r.changed(container, at+"name", fmt.Sprintf("it is missing: the container is named %s, like its image", name))
}

func (r *rewriter) container(c map[string]any, at string) {
	r.list(c, at, "command")
	r.list(c, at, "args")
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		r.list(inner(c, probe, "exec"), at+probe+".exec.", "command")
	}
	for _, hook := range []string{"postStart", "preStop"} {
		r.list(inner(c, "lifecycle", hook, "exec"), at+"lifecycle."+hook+".exec.", "command")
	}
	env, _ := c["env"].([]any)
	for i, e := range env {
		if v, ok := e.(map[string]any); ok {
			r.scalar(v, "value", fmt.Sprintf("%senv[%d].value", at, i))
		}
	}
	ports, _ := c["ports"].([]any)
	for i, p := range ports {
		port, _ := p.(map[string]any)
		was, _ := port["protocol"].(string)
		if upper := strings.ToUpper(was); upper != was && slices.Contains([]string{"TCP", "UDP", "SCTP"}, upper) {
			port["protocol"] = upper
			r.changed(protocol, fmt.Sprintf("%sports[%d].protocol", at, i), fmt.Sprintf("%q is read as %s", was, upper))
		}
	}
	was, _ := c["imagePullPolicy"].(string)
	if now := policies()[strings.ToLower(was)]; now != "" && now != was {
		c["imagePullPolicy"] = now
		r.changed(pullPolicy, at+"imagePullPolicy", fmt.Sprintf("%q is read as %s", was, now))
	}
}

// policies are podman's values, in any case. Kubernetes has no equivalent of its "newer".
func policies() map[string]string {
	return map[string]string{"always": "Always", "missing": "IfNotPresent", "ifmissing": "IfNotPresent", "ifnotpresent": "IfNotPresent", "never": "Never"}
}

// texts rewrites the values of maps of texts. With keys, those are fields of m below at; else at is the field.
func (r *rewriter) texts(m map[string]any, at string, keys ...string) {
	if len(keys) == 0 {
		keys, at = []string{at}, ""
	}
	for _, key := range keys {
		values := inner(m, key)
		for _, name := range sorted(values) {
			r.scalar(values, name, at+key+"["+name+"]")
		}
	}
}

// list rewrites the elements of a list of texts.
func (r *rewriter) list(m map[string]any, at, key string) {
	list, _ := m[key].([]any)
	for i, v := range list {
		if text, ok := r.text(v, fmt.Sprintf("%s%s[%d]", at, key, i)); ok {
			list[i] = text
		}
	}
}

func (r *rewriter) scalar(m map[string]any, key, path string) {
	if text, ok := r.text(m[key], path); ok {
		m[key] = text
	}
}

// text converts a number or boolean to text, if it is written in its usual form: not 0777, 1_000, 1.10 or yes.
func (r *rewriter) text(v any, path string) (string, bool) {
	text := ""
	switch v := v.(type) {
	case bool:
		text = strconv.FormatBool(v)
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return "", false
	}
	if r.left--; r.left < 0 || r.written(path) != text {
		return "", false
	}
	r.changed(number, path, "a number, or true or false, is read as text; Kubernetes requires quotes")
	return text, true
}

// inner follows fields that are mappings; nil: there is no such.
func inner(m map[string]any, fields ...string) map[string]any {
	for _, f := range fields {
		m, _ = m[f].(map[string]any)
	}
	return m
}

func sorted(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
