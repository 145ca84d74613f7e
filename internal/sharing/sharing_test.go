package sharing_test

import (
	"slices"
	"strings"
	"testing"

	"monopod/internal/sharing"
	"monopod/manifests"
	"monopod/manifests/decode"
)

// spaces has two local sources, and three others.
func spaces(sharing map[string][]string) *manifests.Spaces {
	return &manifests.Spaces{Local: []string{"file", "applied", "apiserver"}, Sharing: sharing}
}

// from decodes objects of a source.
func from(t *testing.T, source, text string) []*manifests.Object {
	t.Helper()
	c, err := decode.All("/"+source+".yaml", []byte(text), decode.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	return c.Objects
}

// podOf decodes a pod of a source.
func podOf(t *testing.T, source, text string) *manifests.Pod {
	t.Helper()
	c, err := decode.All("/"+source+".yaml", []byte(text), decode.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	return c.Pods[0]
}

const (
	everything = `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {by: SOURCE}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {by: SOURCE}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], volumeName: v, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: k}, provisioner: x/y}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: k}, handler: h}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: k}, value: 7}
`
	user = `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  runtimeClassName: k
  priorityClassName: k
  imagePullSecrets: [{name: s}]
  volumes: [{name: m, configMap: {name: m}}, {name: c, persistentVolumeClaim: {claimName: c}}]
  containers: [{name: c, image: i}]
`
)

func TestAllHiddenReferencesAreListed(t *testing.T) {
	list := from(t, "applied", strings.ReplaceAll(everything, "SOURCE", "applied"))
	pods := []*manifests.Pod{podOf(t, "fleet", user), podOf(t, "file", user)}
	hidden := sharing.List(pods, manifests.NewObjectsIn(spaces(nil), list))
	var all []string
	for _, h := range hidden {
		all = append(all, h.String())
	}
	want := "pod default/p of fleet: ConfigMap default/m of applied, pod default/p of fleet: PersistentVolumeClaim default/c of applied, " +
		"pod default/p of fleet: Secret default/s of applied"
	if got := strings.Join(all, ", "); got != want {
		t.Error(got)
	}
	shared := map[string][]string{"site": {"file"}, "fleet": {"site/x"}}
	if got := sharing.Value(hidden, shared); got != "{fleet: [site/x, applied/default], site: [file]}" || len(shared["fleet"]) != 1 {
		t.Error(got)
	}
	claim := slices.Concat(from(t, "fleet", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {accessModes: [ReadWriteOnce], volumeName: v, resources: {requests: {storage: 1Gi}}}\n"),
		slices.DeleteFunc(list, func(o *manifests.Object) bool { return o.Kind != "PersistentVolume" }))
	hidden = sharing.List(pods[:1], manifests.NewObjectsIn(spaces(nil), claim))
	if len(hidden) != 1 || hidden[0].Object.Kind != "PersistentVolume" || sharing.Value(hidden, nil) != "{fleet: [applied]}" {
		t.Errorf("%v", hidden)
	}
}
