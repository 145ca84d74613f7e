package idrange

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"monopod/manifests"
)

// instance returns the ranges of a monopod with a root directory of its own.
func instance(t *testing.T, dir, name string) *Ranges {
	t.Helper()
	root := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	return &Ranges{Claims: Claims{Dir: dir, Owner: root}}
}

func take(t *testing.T, r *Ranges, sandbox string, want uint32) {
	t.Helper()
	if first, err := r.Take(sandbox, nil); err != nil || first != want*manifests.UserIDs {
		t.Errorf("%s gets %d (%v), want %d", sandbox, first/manifests.UserIDs, err, want)
	}
}

func TestRangesOfOtherMonopodsAreNotAssigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	one, two := instance(t, dir, "one"), instance(t, dir, "two")
	take(t, one, "a", 1)
	take(t, two, "b", 2)
	take(t, one, "c", 3)
	if err := two.Release("b"); err != nil {
		t.Fatal(err)
	}
	take(t, one, "d", 2)
	// The first is killed; its pods go on. The next agent reads their ranges from the records, as one that is updated does.
	again := &Ranges{Claims: one.Claims}
	take(t, two, "e", 4)
	if err := again.Keep(map[string]uint32{"a": manifests.UserIDs, "c": 3 * manifests.UserIDs}); err != nil {
		t.Fatal(err)
	}
	take(t, two, "f", 2) // d was never recorded
	// The first is removed, and its directory with it.
	if err := os.RemoveAll(one.Claims.Owner); err != nil {
		t.Fatal(err)
	}
	take(t, two, "g", 1)
	take(t, two, "h", 3)
}

func TestADamagedClaimIsNone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	take(t, instance(t, dir, "one"), "a", 1)
}

func TestWithoutAPlaceForClaimsNothingIsAssigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := instance(t, dir, "one")
	if first, err := r.Take("a", nil); err == nil {
		t.Errorf("there is a range at %d", first)
	}
	if err := r.Release("a"); err != nil || len(r.taken) > 0 {
		t.Errorf("taken: %v (%v)", r.taken, err)
	}
}

func TestMonopodsThatAssignAtTheSameTimeGetDifferentRanges(t *testing.T) {
	dir := t.TempDir()
	const each = 8
	var all sync.Map
	var wait sync.WaitGroup
	for _, name := range []string{"one", "two", "three"} {
		r := instance(t, dir, name)
		for i := range each {
			wait.Go(func() {
				first, err := r.Take(name+string(rune('a'+i)), nil)
				if _, twice := all.LoadOrStore(first, name); twice || err != nil {
					t.Errorf("%s: %d (%v)", name, first, err)
				}
			})
		}
	}
	wait.Wait()
}
