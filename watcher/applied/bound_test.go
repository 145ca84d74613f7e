package applied

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

// puts returns a change that stores a document of so many bytes.
func puts(id manifests.ObjectID, size int) Change {
	return Change{Put: map[manifests.ObjectID][]byte{id: []byte(strings.Repeat("x", size))}}
}

func newBounded(t *testing.T, objects int, bytes int64) *Store {
	t.Helper()
	s := NewStore(filepath.Join(t.TempDir(), "applied"))
	s.bound.objects, s.bound.bytes = objects, bytes
	return s
}

func TestNoMoreThanTheLimitsIsStored(t *testing.T) {
	s := newBounded(t, 3, 100)
	change(t, s, puts(pod("a"), 40))
	change(t, s, puts(pod("b"), 40))
	full := func(c Change) *FullError {
		t.Helper()
		err, ok := errors.AsType[*FullError](s.Change(c))
		if !ok {
			t.Fatal("it is stored")
		}
		if fits, ok := errors.AsType[*FullError](s.Fits(c)); !ok || fits.Bytes != err.Bytes {
			t.Errorf("Fits: %v", fits)
		}
		return err
	}
	err := full(puts(pod("c"), 21))
	if err.Objects != 3 || err.Bytes != 101 || err.Largest(nil) != "2 of kind pod in namespace default with 0.0 MiB" || err.Largest(func(n string) bool { return n == "x" }) != "" {
		t.Errorf("%v; %s", err, err.Largest(nil))
	}
	_ = full(puts(pod("b"), 61))
	change(t, s, puts(pod("b"), 60))
	change(t, s, puts(pod("c"), 0))
	_ = full(puts(pod("d"), 0))
	replaced := puts(pod("d"), 40)
	replaced.Remove = []manifests.ObjectID{pod("a")}
	change(t, s, replaced)
	if len(stored(t, s.Dir())) != 3 || len(hidden(t, s.Dir())) != 0 {
		t.Errorf("%v, %v", stored(t, s.Dir()), hidden(t, s.Dir()))
	}
	if err := os.Remove(s.Path(pod("d"))); err != nil { // by hand
		t.Fatal(err)
	}
	change(t, s, puts(pod("e"), 40))
}

// TestALargerStoreIsKept: an earlier release had no limits. Everything but growth is possible.
func TestALargerStoreIsKept(t *testing.T) {
	s := newBounded(t, 1000, 1<<30)
	for i := range 10 {
		change(t, s, puts(pod(fmt.Sprint(i)), 100))
	}
	s = NewStore(s.Dir())
	s.bound.objects, s.bound.bytes = 5, 500
	if err := s.Open(); err != nil || len(stored(t, s.Dir())) != 10 {
		t.Fatalf("%v, %v", err, stored(t, s.Dir()))
	}
	change(t, s, puts(pod("1"), 100))
	change(t, s, puts(pod("1"), 90))
	if err := s.Change(puts(pod("1"), 91)); err == nil {
		t.Error("it grows")
	}
	if err := s.Change(puts(pod("new"), 0)); err == nil {
		t.Error("it has more objects")
	}
	note := &Note{UID: "u", DeletionTimestamp: new(metav1.Now())}
	ends := puts(pod("2"), 100)
	ends.Notes = map[manifests.ObjectID]*Note{pod("2"): note}
	s.bound.bytes = 1000 // full, but not larger
	change(t, s, ends)
	for i := range 8 {
		change(t, s, Change{Remove: []manifests.ObjectID{pod(fmt.Sprint(i))}})
	}
	change(t, s, puts(pod("new"), 100))
}
