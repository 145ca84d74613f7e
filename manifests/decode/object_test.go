package decode

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

const objectFile = `
apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {a: "1"}
binaryData: {b: AAE=}
---
apiVersion: v1
kind: Secret
metadata: {name: app, namespace: shop}
data: {a: eA==, b: eQ==}
stringData: {b: "2"}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec: {anything: goes}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: c}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: app}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: app}]}
`

func TestAFileMayHoldObjectsWorkloadsAndWhatMeansNothing(t *testing.T) {
	c, err := All("f.yaml", []byte(objectFile), Options{Source: "file"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range append(c.Objects, c.Workloads...) {
		got = append(got, o.String())
	}
	want := "ConfigMap default/app, Secret shop/app, RuntimeClass kata, Deployment default/d"
	if strings.Join(got, ", ") != want || len(c.Pods) != 1 {
		t.Errorf("got %s and %d pods", strings.Join(got, ", "), len(c.Pods))
	}
	ignored := strings.Join(c.Ignored, "\n")
	for _, kind := range []string{"f.yaml: 2 documents are ignored: ", "Ingress at line 14 ", "Certificate of cert-manager.io/v1 at line 19 "} {
		if !strings.Contains(ignored, kind) {
			t.Errorf("%q is not among the ignored:\n%s", kind, ignored)
		}
	}
	objects := manifests.NewObjects(c.Objects)
	if m := objects.ConfigMap("default", "app"); m == nil || m.Data["a"] != "1" || string(m.BinaryData["b"]) != "\x00\x01" {
		t.Errorf("ConfigMap: %v", m)
	}
	s := objects.Secret("shop", "app")
	if s == nil || string(s.Data["a"]) != "x" || string(s.Data["b"]) != "2" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Error("the Secret is not as written, with stringData over data")
	}
	if objects.Secret("default", "app") != nil || objects.RuntimeClass("kata") == nil {
		t.Error("namespaces do not count as they should")
	}
}

func TestMistakesInObjectsAreRefusedWithPositionAndWithoutSecrets(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"an unknown field", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndate: {a: b}\n", `f:4:1: configmap default/a: date: unknown field; did you mean "data"?`},
		{"a misspelled kind", "apiVersion: v1\nkind: ConfgMap\nmetadata: {name: a}\n", `f:2:7: there is no kind ConfgMap in apiVersion v1; did you mean "ConfigMap"?`},
		{"a kind of another group", "apiVersion: v1\nkind: Deployment\nmetadata: {name: a}\n", `f:1:13: apiVersion: there is no Deployment in apiVersion v1; write apiVersion: apps/v1`},
		{"a key", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a/b: c\n", `f:5:8: configmap default/a: data[a/b]: Invalid value: "a/b"`},
		{"a key in both", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: c}\nbinaryData: {k: AAE=}\n", `data[k]: Invalid value: "k": duplicate of key present in binaryData`},
		{"a number in a Secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {pin: 04711}\n", `f:4:19: secret default/a: stringData[pin]: expected a string, found something else; put it in quotes`},
		{"no base64 in a Secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {pin: '4711!'}\n", `f:4:13: secret default/a: data[pin]: it is not in base64`},
		{"a registry secret without its key", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ntype: kubernetes.io/dockerconfigjson\n", `data[.dockerconfigjson]: Required value`},
		{"a registry secret that is no JSON", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{4711'}\n", `<secret contents redacted>`},
		{"twice the same", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", `this Secret is already defined at line 1 of the same input`},
	} {
		_, err := All("f", []byte(c.doc), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: the error shows the secret: %v", c.name, err)
		}
	}
}

func objectsOf(t *testing.T, doc string) []*manifests.Object {
	t.Helper()
	c, err := All("f", []byte(doc), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Objects
}

func TestImmutableObjectsCannotBeEdited(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	was := objectsOf(t, head+"immutable: true\ndata: {k: v}\n")
	for _, c := range []struct {
		name, doc string
		want      int
	}{
		{"the same", head + "immutable: true\ndata: {k: v}\n", 0},
		{"another label", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: z}}\nimmutable: true\ndata: {k: v}\n", 0},
		{"other data", head + "immutable: true\ndata: {k: w}\n", 1},
		{"more binary data", head + "immutable: true\ndata: {k: v}\nbinaryData: {b: AAE=}\n", 1},
		{"not immutable any more", head + "data: {k: v}\n", 1},
		{"gone", "# nothing\n", 0},
	} {
		if errs := manifests.ImmutableEdits(was, objectsOf(t, c.doc)); len(errs) != c.want {
			t.Errorf("%s: %v", c.name, errs)
		}
	}
	if errs := manifests.ImmutableEdits(objectsOf(t, head+"data: {k: v}\n"), was); len(errs) != 0 {
		t.Errorf("an object cannot become immutable: %v", errs)
	}
}

func TestWithRefsKeepsThePointerWhileNothingChanges(t *testing.T) {
	c, err := All("f", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain := c.Pods[0]
	if manifests.WithRefs(plain, nil, manifests.NewObjects(nil)) != plain {
		t.Error("a pod that refers to nothing is copied")
	}
	object := plain.Object.DeepCopy()
	object.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}}
	pod := &manifests.Pod{Object: object}
	one := manifests.NewObjects(objectsOf(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"))
	missing := manifests.WithRefs(pod, nil, nil)
	there := manifests.WithRefs(pod, missing, one)
	switch {
	case missing.Refs == nil || missing.Refs.ConfigMap("a") != nil:
		t.Error("what is missing is there")
	case there == missing || there.Refs.ConfigMap("a") == nil:
		t.Error("what is there is missing")
	case manifests.WithRefs(pod, there, one) != there:
		t.Error("the same content gives another pod")
	case manifests.WithRefs(pod, there, nil) == there:
		t.Error("that the object is gone is not noticed")
	}
}
