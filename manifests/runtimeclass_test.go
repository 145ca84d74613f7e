package manifests_test

import (
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
)

const classFile = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: heavy}
handler: vm
overhead: {podFixed: {cpu: 250m, memory: 120Mi}}
scheduling: {nodeSelector: {vm: "true"}, tolerations: [{key: vm, operator: Exists}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: light}
handler: crun
`

// classed loads a pod with more fields, and resolves it by classFile.
func classed(t *testing.T, fields string) *manifests.Pod {
	t.Helper()
	pods, err := decode.Pods("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n"+fields), decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return manifests.WithRefs(pods[0], nil, manifests.NewObjects(objectsOf(t, classFile)))
}

func TestRuntimeOf(t *testing.T) {
	for _, c := range []struct{ name, fields, handler, memory, err string }{
		{"no class", "", "", "0", ""},
		{"a class without overhead", "  runtimeClassName: light\n", "crun", "0", ""},
		{"a class with overhead", "  runtimeClassName: heavy\n", "vm", "120Mi", ""},
		{"the same overhead, written otherwise", "  runtimeClassName: heavy\n  overhead: {cpu: '0.25', memory: 122880Ki}\n", "vm", "120Mi", ""},
		{"another overhead", "  runtimeClassName: heavy\n  overhead: {memory: 1Mi}\n", "", "0", `RuntimeClass "heavy": pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`},
		{"an overhead of its own", "  runtimeClassName: light\n  overhead: {memory: 1Mi}\n", "", "0", `RuntimeClass "light": pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`},
		{"a class that is not there", "  runtimeClassName: kata\n", "", "0", `RuntimeClass "kata" not found`},
	} {
		got, err := manifests.RuntimeOf(classed(t, c.fields))
		if got.Handler != c.handler || got.Overhead.Memory().String() != c.memory || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestRuntimeClassesAreValidated(t *testing.T) {
	const head = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\n"
	for doc, want := range map[string]string{
		head + "handler: A\n": `handler: Invalid value: "A"`,
		head + "handler: a\noverhead: {podFixed: {cpu: -1}}\n":                                                            `overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`,
		head + "handler: a\nscheduling: {nodeSelector: {a/b/c: d}}\n":                                                     `scheduling.nodeSelector: Invalid value: "a/b/c"`,
		head + "handler: a\nscheduling: {tolerations: [{operator: Equal}]}\n":                                             `scheduling.tolerations[0].operator: Invalid value: "Equal"`,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {overhead: {cpu: 1}, containers: [{name: c, image: i}]}\n": `spec.overhead: ` + manifests.NoOverhead,
	} {
		if _, err := decode.All("f", []byte(doc), decode.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
}

func TestTheHandlerOfARuntimeClassCannotBeEdited(t *testing.T) {
	was := objectsOf(t, classFile)
	if errs := manifests.ImmutableEdits(was, objectsOf(t, strings.Replace(classFile, "handler: vm", "handler: other", 1))); len(errs) != 1 {
		t.Errorf("another handler: %v", errs)
	}
	if errs := manifests.ImmutableEdits(was, objectsOf(t, strings.Replace(classFile, "250m", "300m", 1))); len(errs) != 0 {
		t.Errorf("another overhead: %v", errs)
	}
}
