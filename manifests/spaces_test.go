package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/spaces/spacestest"
)

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
		if got := spacestest.Spaces(c.sharing).Sees(c.reader, c.owner, id.Kind, id.Namespace); got != c.want {
			t.Errorf("%s reads %s of %s with %v: %t", c.reader, c.id, c.owner, c.sharing, got)
		}
		if !(*manifests.Spaces)(nil).Sees(c.reader, c.owner, id.Kind, id.Namespace) {
			t.Errorf("%s does not see %s of %s without boundaries", c.reader, c.id, c.owner)
		}
	}
}

// seen describes what a pod gets.
func seen(r *manifests.Refs) string {
	return fmt.Sprintf("%d %d %d %d %d %t %t", len(r.ConfigMaps), len(r.Secrets), len(r.Claims), len(r.Volumes), len(r.Classes), r.RuntimeClass != nil, r.PriorityClass != nil)
}

func TestAPodGetsOnlyTheObjectsOfItsSpace(t *testing.T) {
	of := func(source string) []*manifests.Object {
		return spacestest.Everything(t, source)
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
		objects := manifests.NewObjectsIn(spacestest.Spaces(c.sharing), of(c.owner))
		pod := manifests.WithRefs(spacestest.Pod(t, c.reader), nil, objects)
		if got := seen(pod.Refs); got != c.want || len(pod.Refs.Hidden) != c.hidden {
			t.Errorf("%s: %s, want %s; hidden %v", c.name, got, c.want, pod.Refs.Hidden)
		}
		if again := manifests.WithRefs(spacestest.Pod(t, c.reader), pod, manifests.NewObjectsIn(spacestest.Spaces(c.sharing), objects.OfKind("Secret"))); again.Refs.Same(pod.Refs) {
			t.Errorf("%s: what is missing is not noticed", c.name)
		}
	}
}

// A ConfigMap of another source replaced that of a local pod, because that source had precedence.
func TestOfTwoObjectsWithOneNameTheLocalOneCounts(t *testing.T) {
	list := slices.Concat(spacestest.Everything(t, "fleet"), spacestest.Everything(t, "applied"))
	objects := manifests.NewObjectsIn(spacestest.Spaces(nil), list)
	if m := objects.ConfigMap("default", "m"); m.Data["by"] != "applied" {
		t.Errorf("it is that of %s", m.Data["by"])
	}
	local := manifests.WithRefs(spacestest.Pod(t, "file"), nil, objects)
	if got := seen(local.Refs); got != "1 1 1 1 1 true true" || local.Refs.ConfigMap("m").Data["by"] != "applied" {
		t.Error(got)
	}
	if other := manifests.WithRefs(spacestest.Pod(t, "fleet"), nil, objects); other.Refs.ConfigMap("m") != nil || len(other.Refs.Hidden) != 3 {
		t.Errorf("%v", other.Refs.Hidden)
	}
}

// A claim gets the volumes and classes of its own space, whichever pod mounts it.
func TestTheStorageOfAClaimIsThatOfItsSpace(t *testing.T) {
	parts := func(source string, kinds ...string) []*manifests.Object {
		all := spacestest.Everything(t, source)
		return slices.DeleteFunc(all, func(o *manifests.Object) bool { return !slices.Contains(kinds, o.Kind) })
	}
	shared := map[string][]string{"fleet": {"applied/default"}, "applied": {"fleet"}}
	objects := manifests.NewObjectsIn(spacestest.Spaces(shared), slices.Concat(parts("applied", "PersistentVolumeClaim"), parts("fleet", "PersistentVolume", "StorageClass", "ConfigMap")))
	pod := manifests.WithRefs(spacestest.Pod(t, "fleet"), nil, objects)
	if s := pod.Refs.Storage("c"); len(pod.Refs.Claims) != 1 || len(pod.Refs.Volumes) != 1 || s.Reader != "applied" || len(s.Volumes) != 1 {
		t.Errorf("%s, storage of %s", seen(pod.Refs), s.Reader) // the local space may read fleet
	}
	objects = manifests.NewObjectsIn(spacestest.Spaces(map[string][]string{"fleet": {"applied/default"}}), slices.Concat(parts("applied", "PersistentVolumeClaim"), parts("fleet", "PersistentVolume", "StorageClass", "ConfigMap")))
	pod = manifests.WithRefs(spacestest.Pod(t, "fleet"), nil, objects)
	s := pod.Refs.Storage("c")
	if len(s.Volumes)+len(s.Classes) != 0 || s.Owner(manifests.ObjectID{Kind: "PersistentVolume", Name: "v"}) != "fleet" {
		t.Errorf("the claim of applied can be bound to %v", s.Volumes)
	}
	if pod.Refs.Storage("other") != pod.Refs || (*manifests.Refs)(nil).Storage("c") != nil {
		t.Error("storage of a claim of its own space")
	}
}
