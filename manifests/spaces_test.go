package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
)

// spaces has two local sources, and three others.
func spaces(sharing map[string][]string) *manifests.Spaces {
	return &manifests.Spaces{Local: []string{"file", "applied", "apiserver"}, Sharing: sharing}
}

func TestASourceHasASpaceAndSeesOnlyThat(t *testing.T) {
	for _, c := range []struct {
		reader, owner, id string
		sharing           map[string][]string
		want              bool
	}{
		{"file", "applied", "Secret a/s", nil, true},
		{"fleet", "fleet", "Secret a/s", nil, true},
		{"fleet", "file", "Secret a/s", nil, false},
		{"file", "fleet", "Secret a/s", nil, false},
		{"fleet", "site", "Secret a/s", nil, false},
		{"fleet", "file", "PersistentVolume v", nil, false},
		{"fleet", "file", "StorageClass c", nil, true},
		{"fleet", "applied", "RuntimeClass c", nil, true},
		{"apiserver", "applied", "PriorityClass c", nil, true},
		{"fleet", "site", "StorageClass c", nil, false},
		{"file", "site", "RuntimeClass c", nil, false},
		{"fleet", "site", "PriorityClass c", nil, false},
		// A level of the API server's pods changes nothing.
		{"file", "apiserver", "Secret a/s", nil, false},
		{"apiserver", "file", "Secret a/s", nil, false},
		{"", "file", "Secret a/s", nil, false},

		{"fleet", "applied", "Secret a/s", map[string][]string{"fleet": {"applied"}}, true},
		{"fleet", "applied", "PersistentVolume v", map[string][]string{"fleet": {"applied"}}, true},
		{"fleet", "applied", "Secret a/s", map[string][]string{"fleet": {"x", "applied/a"}}, true},
		{"fleet", "applied", "Secret ab/s", map[string][]string{"fleet": {"applied/a"}}, false},
		{"fleet", "applied", "PersistentVolume v", map[string][]string{"fleet": {"applied/a"}}, false},
		{"fleet", "file", "Secret a/s", map[string][]string{"fleet": {"applied"}}, false},
		{"site", "applied", "Secret a/s", map[string][]string{"fleet": {"applied"}}, false},
		{"applied", "fleet", "Secret a/s", map[string][]string{"fleet": {"applied"}}, false},
		// Sources of the local space read together.
		{"file", "fleet", "Secret a/s", map[string][]string{"applied": {"fleet"}}, true},
	} {
		kind, name, _ := strings.Cut(c.id, " ")
		id := manifests.ObjectID{Kind: kind, Name: name}
		if ns, n, ok := strings.Cut(name, "/"); ok {
			id.Namespace, id.Name = ns, n
		}
		if got := spaces(c.sharing).Sees(c.reader, c.owner, id.Kind, id.Namespace); got != c.want {
			t.Errorf("%s reads %s of %s with %v: %t", c.reader, c.id, c.owner, c.sharing, got)
		}
		if !(*manifests.Spaces)(nil).Sees(c.reader, c.owner, id.Kind, id.Namespace) {
			t.Errorf("%s does not see %s of %s without boundaries", c.reader, c.id, c.owner)
		}
	}
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

// seen describes what a pod gets.
func seen(r *manifests.Refs) string {
	return fmt.Sprintf("%d %d %d %d %d %t %t", len(r.ConfigMaps), len(r.Secrets), len(r.Claims), len(r.Volumes), len(r.Classes), r.RuntimeClass != nil, r.PriorityClass != nil)
}

func TestAPodGetsOnlyTheObjectsOfItsSpace(t *testing.T) {
	of := func(source string) []*manifests.Object {
		return from(t, source, strings.ReplaceAll(everything, "SOURCE", source))
	}
	for _, c := range []struct {
		name, reader, owner string
		sharing             map[string][]string
		want                string
		hidden              int
	}{
		{"its own", "fleet", "fleet", nil, "1 1 1 1 1 true true", 0},
		{"of the local space", "file", "applied", nil, "1 1 1 1 1 true true", 0},
		{"of the local space from outside", "fleet", "applied", nil, "0 0 0 0 1 true true", 3},
		{"of another one", "fleet", "site", nil, "0 0 0 0 0 false false", 5},
		{"of another one for the local space", "file", "site", nil, "0 0 0 0 0 false false", 5},
		{"shared", "fleet", "site", map[string][]string{"fleet": {"site"}}, "1 1 1 1 1 true true", 0},
		{"shared in a namespace", "fleet", "applied", map[string][]string{"fleet": {"applied/default"}}, "1 1 1 0 1 true true", 0},
		{"shared in another namespace", "fleet", "applied", map[string][]string{"fleet": {"applied/x"}}, "0 0 0 0 1 true true", 3},
	} {
		objects := manifests.NewObjectsIn(spaces(c.sharing), of(c.owner))
		pod := manifests.WithRefs(podOf(t, c.reader, user), nil, objects)
		if got := seen(pod.Refs); got != c.want || len(pod.Refs.Hidden) != c.hidden {
			t.Errorf("%s: %s, want %s; hidden %v", c.name, got, c.want, pod.Refs.Hidden)
		}
		if again := manifests.WithRefs(podOf(t, c.reader, user), pod, manifests.NewObjectsIn(spaces(c.sharing), objects.OfKind("Secret"))); again.Refs.Same(pod.Refs) {
			t.Errorf("%s: what is missing is not noticed", c.name)
		}
	}
}

// A ConfigMap of another source replaced that of a local pod, because that source had precedence.
func TestOfTwoObjectsWithOneNameTheLocalOneCounts(t *testing.T) {
	list := slices.Concat(from(t, "fleet", strings.ReplaceAll(everything, "SOURCE", "fleet")), from(t, "applied", strings.ReplaceAll(everything, "SOURCE", "applied")))
	objects := manifests.NewObjectsIn(spaces(nil), list)
	if m := objects.ConfigMap("default", "m"); m.Data["by"] != "applied" {
		t.Errorf("it is that of %s", m.Data["by"])
	}
	local := manifests.WithRefs(podOf(t, "file", user), nil, objects)
	if got := seen(local.Refs); got != "1 1 1 1 1 true true" || local.Refs.ConfigMap("m").Data["by"] != "applied" {
		t.Error(got)
	}
	if other := manifests.WithRefs(podOf(t, "fleet", user), nil, objects); other.Refs.ConfigMap("m") != nil || len(other.Refs.Hidden) != 3 {
		t.Errorf("%v", other.Refs.Hidden)
	}
}

// A claim gets the volumes and classes of its own space, whichever pod mounts it.
func TestTheStorageOfAClaimIsThatOfItsSpace(t *testing.T) {
	parts := func(source string, kinds ...string) []*manifests.Object {
		all := from(t, source, strings.ReplaceAll(everything, "SOURCE", source))
		return slices.DeleteFunc(all, func(o *manifests.Object) bool { return !slices.Contains(kinds, o.Kind) })
	}
	shared := map[string][]string{"fleet": {"applied/default"}, "applied": {"fleet"}}
	objects := manifests.NewObjectsIn(spaces(shared), slices.Concat(parts("applied", "PersistentVolumeClaim"), parts("fleet", "PersistentVolume", "StorageClass", "ConfigMap")))
	pod := manifests.WithRefs(podOf(t, "fleet", user), nil, objects)
	if s := pod.Refs.Storage("c"); len(pod.Refs.Claims) != 1 || len(pod.Refs.Volumes) != 1 || s.Reader != "applied" || len(s.Volumes) != 1 {
		t.Errorf("%s, storage of %s", seen(pod.Refs), s.Reader) // the local space may read fleet
	}
	objects = manifests.NewObjectsIn(spaces(map[string][]string{"fleet": {"applied/default"}}), slices.Concat(parts("applied", "PersistentVolumeClaim"), parts("fleet", "PersistentVolume", "StorageClass", "ConfigMap")))
	pod = manifests.WithRefs(podOf(t, "fleet", user), nil, objects)
	s := pod.Refs.Storage("c")
	if len(s.Volumes)+len(s.Classes) != 0 || s.Owner(manifests.ObjectID{Kind: "PersistentVolume", Name: "v"}) != "fleet" {
		t.Errorf("the claim of applied can be bound to %v", s.Volumes)
	}
	if pod.Refs.Storage("other") != pod.Refs || (*manifests.Refs)(nil).Storage("c") != nil {
		t.Error("storage of a claim of its own space")
	}
}
