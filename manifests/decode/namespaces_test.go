package decode

import (
	"testing"

	"monopod/manifests"
	"monopod/manifests/policy"
)

// TestASourceDefinesObjectsInItsNamespacesOnly: all others are refused one by one, with their place and the key that would allow them.
func TestASourceDefinesObjectsInItsNamespacesOnly(t *testing.T) {
	const spec = "spec: {containers: [{name: c, image: 'example.com/a:1'}]}"
	const input = `apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
` + spec + `
---
apiVersion: v1
kind: Pod
metadata:
  name: b
  namespace: kube-system
` + spec + `
---
apiVersion: v1
kind: Pod
metadata: {name: c}
` + spec + `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: other}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, ` + spec + `}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: e, namespace: web}}
- {apiVersion: v1, kind: Service, metadata: {name: f, namespace: other}, spec: {ports: [{port: 80}]}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: g}
provisioner: monopod.dev/local
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
`
	const hint = "write one of shop, web, or allow it by namespaces: {fleet: [shop, web, "
	c, err := Parts("f.yaml", []byte(input), Options{Source: "fleet", Policy: policy.Policy{Namespaces: []string{"shop", "web"}}})
	if c == nil || len(c.Pods) != 1 || c.Pods[0].Object.Name != "a" || len(c.Workloads) != 0 || len(c.Objects) != 1 || c.Objects[0].Object.GetName() != "e" {
		t.Fatalf("%+v, %v", c, err)
	}
	want := []manifests.Error{
		{Line: 10, Field: "metadata.namespace", Msg: "source fleet may not define objects in namespace kube-system", Hint: hint + "kube-system]} in the configuration"},
		{Line: 15, Field: "metadata.namespace", Msg: "source fleet may not define objects in namespace default", Hint: hint + "default]} in the configuration"},
		{Line: 20, Field: "metadata.namespace", Msg: "source fleet may not define objects in namespace other", Hint: hint + "other]} in the configuration"},
		{Line: 27, Field: "items[1].metadata.namespace", Msg: "source fleet may not define objects in namespace other", Hint: hint + "other]} in the configuration"},
		{
			Line: 30, Field: "kind", Msg: "source fleet may define objects in the namespaces shop, web only, and this one belongs to the whole machine",
			Hint: "define it in another source, or remove fleet from namespaces in the configuration",
		},
	}
	got := manifests.Errors(err)
	if len(got) != len(want) {
		t.Fatalf("%d errors: %v", len(got), err)
	}
	for i, e := range got {
		if e.File != "f.yaml" || e.Line != want[i].Line || e.Field != want[i].Field || e.Msg != want[i].Msg || e.Hint != want[i].Hint {
			t.Errorf("%+v\nwant %+v", e, want[i])
		}
	}
	c, err = Parts("f.yaml", []byte(input), Options{Source: "apiserver", Author: AuthorAPIServer, Policy: policy.Policy{Namespaces: []string{"shop", "web"}}})
	if c == nil || len(c.Pods) != 1 || len(c.Objects) != 3 || len(manifests.Errors(err)) != 2 {
		t.Errorf("of an API server: %+v, %v", c, err)
	}
	if _, err := All("f.yaml", []byte(input), Options{Source: "fleet"}); err != nil {
		t.Errorf("without limits: %v", err)
	}
}
