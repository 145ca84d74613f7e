package claims

import (
	"slices"
	"strings"
	"testing"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/decode"
)

// written are the documents of a source.
func written(t testing.TB, source string, docs ...string) []*manifests.Object {
	t.Helper()
	c, err := decode.All("/x/"+source+".yaml", []byte("# nothing else\n"+strings.Join(docs, "\n---\n")), decode.Options{Source: source})
	check(t, err)
	return c.Objects
}

// within are documents of the local source "applied" and of "fleet".
func within(lists ...[]*manifests.Object) *manifests.Objects {
	return manifests.NewObjectsIn(&manifests.Spaces{Local: []string{"applied"}}, slices.Concat(lists...))
}

// requestOf is the request of a pod of a source.
func requestOf(objects *manifests.Objects, source string) Request {
	return Request{Claim: objects.PersistentVolumeClaim("default", "c"), Refs: manifests.StorageRefs(objects, source), NodeName: "here"}
}

// A StorageClass of another source, with the name that a claim uses, had the directory of the claim deleted.
func TestAClassOfAnotherSpaceDeletesNothing(t *testing.T) {
	deleting := class("standard", "}\nprovisioner: x/y\nreclaimPolicy: Delete")
	for _, c := range []struct {
		name, of string
		want     bool
	}{{"of another space", "fleet", false}, {"of its own", "applied", true}} {
		t.Run(c.name, func(t *testing.T) {
			b, err := OpenBook(t.TempDir(), func(string) bool { return false })
			check(t, err)
			claim := written(t, "applied", pvc("c", ", storageClassName: standard"))
			follow := func(o *manifests.Objects) []string {
				gone, err := b.Follow(o, func(manifests.Origin) bool { return true })
				check(t, err)
				return gone
			}
			objects := within(claim, written(t, "applied"))
			follow(objects)
			_, err = b.Bind(requestOf(objects, "applied"), "")
			check(t, err)
			follow(within(claim, written(t, c.of, deleting)))
			gone := follow(within(written(t, c.of, deleting)))
			if (len(gone) > 0) != c.want {
				t.Errorf("removed: %v", gone)
			}
		})
	}
}

// The volumes of another space are not bound, neither to new claims nor to those that have one: these say so.
func TestVolumesOfAnotherSpaceAreNotBound(t *testing.T) {
	b, err := OpenBook(t.TempDir(), func(string) bool { return false })
	check(t, err)
	mine, theirs := written(t, "fleet", pvc("c", "")), written(t, "applied", pv("v", "1Gi", ""))
	before := manifests.NewObjects(slices.Concat(mine, theirs)) // as in a version without boundaries
	if e, err := b.Bind(requestOf(before, "fleet"), ""); err != nil || e.Volume != "v" {
		t.Fatal(e, err)
	}
	objects := within(mine, theirs)
	want := cause.Cause{Kind: cause.NotShared, Owner: "applied", Reader: "fleet", Object: cause.Object{Kind: "PersistentVolume", Name: "v"}}
	_, err = b.Bind(requestOf(objects, "fleet"), "")
	if cause.Of(err) != want || !strings.Contains(err.Error(), "sharing: {fleet: [applied]}") {
		t.Errorf("a bound claim: %v", err)
	}
	if name, err := Choose(requestOf(objects, "fleet")); err != nil || name != "" {
		t.Errorf("a new claim gets %q, %v", name, err)
	}
	named := within(written(t, "fleet", pvc("c", ", volumeName: v")), theirs)
	if _, err := Choose(requestOf(named, "fleet")); cause.Of(err) != want {
		t.Errorf("a claim that names it: %v", err)
	}
}
