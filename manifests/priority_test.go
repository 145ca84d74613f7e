package manifests_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/podhash"
)

const prioritiesFile = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: patient}
value: 500
preemptionPolicy: Never
description: waits for its turn
`

const defaultsFile = prioritiesFile + `---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: 7
globalDefault: true
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: less}
value: -7
globalDefault: true
`

func TestPriorityOf(t *testing.T) {
	for _, c := range []struct {
		name, fields, classes string
		want                  manifests.Priority
	}{
		{"none", "", prioritiesFile, manifests.Priority{Preempts: true}},
		{"a number", "  priority: -5\n", prioritiesFile, manifests.Priority{Value: -5, Explicit: true, Preempts: true}},
		{"a class", "  priorityClassName: high\n", prioritiesFile, manifests.Priority{Value: 1000, Explicit: true, Class: "high", Preempts: true}},
		{"a class and a number", "  priorityClassName: high\n  priority: 3\n", prioritiesFile, manifests.Priority{Value: 3, Explicit: true, Class: "high", Preempts: true}},
		{"a class that preempts nobody", "  priorityClassName: patient\n", prioritiesFile, manifests.Priority{Value: 500, Explicit: true, Class: "patient"}},
		{"the pod knows better", "  priorityClassName: patient\n  preemptionPolicy: PreemptLowerPriority\n", prioritiesFile, manifests.Priority{Value: 500, Explicit: true, Class: "patient", Preempts: true}},
		{"a class that is not there", "  priorityClassName: gone\n", defaultsFile, manifests.Priority{Class: "gone", Preempts: true}},
		{"built in", "  priorityClassName: system-node-critical\n", "", manifests.Priority{Value: 2000001000, Explicit: true, Class: manifests.NodeCritical, Preempts: true}},
		{"also built in", "  priorityClassName: system-cluster-critical\n", "", manifests.Priority{Value: 2000000000, Explicit: true, Class: manifests.ClusterCritical, Preempts: true}},
		{"the lowest default", "", defaultsFile, manifests.Priority{Value: -7, Explicit: true, Class: "less", Preempts: true}},
		{"a number and a default", "  priority: 1\n", defaultsFile, manifests.Priority{Value: 1, Explicit: true, Preempts: true}},
		{"beside other references", "  priorityClassName: high\n  runtimeClassName: light\n", prioritiesFile + "---" + classFile, manifests.Priority{Value: 1000, Explicit: true, Class: "high", Preempts: true}},
	} {
		pods, err := decode.Pods("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n"+c.fields), decode.Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		objects := manifests.NewObjects(nil)
		if c.classes != "" {
			objects = manifests.NewObjects(objectsOf(t, c.classes))
		}
		pod := manifests.WithRefs(pods[0], nil, objects)
		if got := manifests.PriorityOf(pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if got, critical := manifests.PriorityOf(pod).Critical(), c.want.Value >= 2000000000; got != critical {
			t.Errorf("%s: critical: %v", c.name, got)
		}
		if again := manifests.WithRefs(pods[0], pod, objects); again != pod {
			t.Errorf("%s: nothing has changed, and it is another pod", c.name)
		}
	}
}

func TestAnotherPriorityClassMakesAnotherPod(t *testing.T) {
	pods, err := decode.Pods("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {priorityClassName: high, containers: [{name: c, image: i}]}\n"), decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	with := manifests.WithRefs(pods[0], nil, manifests.NewObjects(objectsOf(t, prioritiesFile)))
	without := manifests.WithRefs(pods[0], with, manifests.NewObjects(nil))
	if with == without || manifests.PriorityOf(without).Explicit || podhash.Pod(with.Object) != podhash.Pod(without.Object) {
		t.Errorf("%+v, %+v", manifests.PriorityOf(with), manifests.PriorityOf(without))
	}
}

func TestPriorityClassesAreValidated(t *testing.T) {
	doc := func(name, rest string) string {
		return "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: " + name + "}\n" + rest
	}
	for doc, want := range map[string]string{
		doc("a", "value: 1000000001\n"):                       "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
		doc("system-mine", "value: 1\n"):                      "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved",
		doc("system-node-critical", "value: 5\n"):             "metadata.name: Forbidden: the class is built in",
		doc("a", "value: 1\npreemptionPolicy: Always\n"):      `preemptionPolicy: Unsupported value: "Always"`,
		doc("A", "value: 1\n"):                                `metadata.name: Invalid value: "A"`,
		doc("a", "value: many\n"):                             "value",
		doc("a", "value: 1\nglobalDefault: true\nextra: 1\n"): "extra",
	} {
		if _, err := decode.All("f", []byte(doc), decode.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
	for _, good := range []string{doc("system-node-critical", "value: 2000001000\n"), doc("a", "value: 1000000000\n"), doc("a", "value: -2147483648\n")} {
		if _, err := decode.All("f", []byte(good), decode.Options{}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// objectsOf decodes objects.
func objectsOf(t *testing.T, doc string) []*manifests.Object {
	t.Helper()
	c, err := decode.All("f", []byte(doc), decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Objects
}

// workloadOf decodes one workload.
func workloadOf(t *testing.T, doc string) metav1.Object {
	t.Helper()
	c, err := decode.All("f", []byte(doc), decode.Options{})
	if err != nil || len(c.Workloads) != 1 {
		t.Fatal(len(c.Workloads), err)
	}
	return c.Workloads[0].Object
}
