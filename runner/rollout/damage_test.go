package rollout

import (
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile/damagetest"
	"monopod/manifests"
)

// TestDamagedStateDoesNotAffectOthers checks that the others are read, and that the damaged one is reported and stored again.
func TestDamagedStateDoesNotAffectOthers(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		s := NewStore(fastDir(t))
		a, b := Entry{Key: manifests.Key{Namespace: "ns", Name: "a"}, State: sample(2)}, Entry{Key: manifests.Key{Namespace: "ns", Name: "b"}, State: sample(2)}
		if _, err := s.Save([]Entry{a, b}); err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(s.path(a.Key), stateFile)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, "ns", "stray"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := s.Load()
		if len(all) != 1 || all[b.Key] == nil || err == nil {
			t.Errorf("%s: %d states, %v", name, len(all), err)
		}
		if _, err := s.Save([]Entry{a}); err != nil {
			t.Errorf("%s: it cannot be stored again: %v", name, err)
		}
		if all, _ := s.Load(); len(all) != 2 {
			t.Errorf("%s: stored again: %d states", name, len(all))
		}
	}
}
