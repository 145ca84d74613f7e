package manifests_test

import (
	"slices"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/manifesttest"
)

// reader refers to ConfigMaps a to d, and to Secrets p to u.
const reader = `
apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: default}
spec:
  imagePullSecrets: [{name: p}]
  volumes:
  - {name: v1, configMap: {name: a}}
  - {name: v2, secret: {secretName: q}}
  - {name: v3, projected: {sources: [{configMap: {name: b}}, {secret: {name: r}}]}}
  - {name: v4, iscsi: {targetPortal: h, iqn: "iqn.2001-04.com.example:disk", lun: 0, secretRef: {name: s}}}
  initContainers:
  - {name: i, image: i, envFrom: [{configMapRef: {name: c}}, {secretRef: {name: t}}]}
  containers:
  - name: c
    image: i
    env:
    - {name: A, value: x}
    - {name: B, valueFrom: {configMapKeyRef: {name: d, key: k}}}
    - {name: C, valueFrom: {secretKeyRef: {name: u, key: k}}}
`

const readerObjects = `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: other}, data: {k: "1"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: q}, stringData: {k: "1"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: unused}, stringData: {k: "1"}}
`

func TestReferredNames(t *testing.T) {
	names := manifests.ReferredNames(manifesttest.Pod(t, reader))
	if !slices.Equal(names.Secrets, []string{"p", "q", "r", "s", "t", "u"}) || len(names.Claims) != 0 {
		t.Errorf("Secrets %v, claims %v", names.Secrets, names.Claims)
	}
}

func TestResolveFindsWhatExistsInTheNamespaceOfThePod(t *testing.T) {
	objects := manifests.NewObjects(objectsOf(t, readerObjects))
	refs := manifests.Resolve(manifesttest.Pod(t, reader), "", objects)
	if len(refs.ConfigMaps) != 1 || refs.ConfigMap("a") == nil || refs.ConfigMap("d") != nil {
		t.Errorf("ConfigMaps %v", refs.ConfigMaps)
	}
	if len(refs.Secrets) != 1 || refs.Secret("q") == nil || refs.Secret("unused") != nil {
		t.Errorf("%d Secrets", len(refs.Secrets))
	}
	var none *manifests.Refs
	if none.ConfigMap("a") != nil || none.Secret("q") != nil {
		t.Error("nil references hold something")
	}
	plain := manifesttest.Pod(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n")
	if got := manifests.Resolve(plain, "", objects); got != nil {
		t.Errorf("a pod without references has %+v", got)
	}
}

func TestWithRefsKeepsPodsThatDidNotChange(t *testing.T) {
	list := objectsOf(t, readerObjects)
	pods, err := decode.Pods("f", []byte(reader), decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := manifests.WithRefs(pods[0], nil, manifests.NewObjects(list))
	switch {
	case first == pods[0]:
		t.Error("the pod has no references")
	case manifests.WithRefs(pods[0], first, manifests.NewObjects(list)) != first:
		t.Error("the same content makes another pod")
	case manifests.WithRefs(pods[0], first, manifests.NewObjects(list[1:])) == first:
		t.Error("less content makes the same pod")
	case manifests.WithRefs(first, nil, manifests.NewObjects(list)) != first:
		t.Error("a pod that has the content already is copied")
	case !manifests.SameRefs(first, first) || manifests.SameRefs(first, pods[0]):
		t.Error("references are compared wrongly")
	}
}

func TestVolumesThatFollowEditsAndContainersThatDoNot(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i, CONTAINER}]\n  volumes: [VOLUME]\n"
	for _, tt := range []struct {
		name, container, volume string
		follows, once           bool
	}{
		{"an emptyDir", "", "{name: v, emptyDir: {}}", false, false},
		{"a ConfigMap", "", "{name: v, configMap: {name: m}}", true, false},
		{"fields of the pod", "", "{name: v, downwardAPI: {}}", true, false},
		{"a projected volume", "", "{name: v, projected: {}}", true, false},
		{"variables", "envFrom: [{secretRef: {name: s}}]", "", false, true},
		{"a literal variable", "env: [{name: A, value: x}]", "", false, false},
		{"a variable from a field", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", "", false, true},
		{"a subPath", "volumeMounts: [{name: v, mountPath: /m, subPath: s}]", "{name: v, secret: {secretName: s}}", true, true},
	} {
		spec := &manifesttest.Pod(t, replaced(pod, "CONTAINER", tt.container, "VOLUME", tt.volume)).Spec
		if got := manifests.FollowsEdits(spec); got != tt.follows {
			t.Errorf("%s: follows edits: %v", tt.name, got)
		}
		if got := manifests.ReadsOnce(&spec.Containers[0]); got != tt.once {
			t.Errorf("%s: reads once: %v", tt.name, got)
		}
	}
}
