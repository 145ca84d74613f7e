package drain_test

import (
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile/damagetest"
	"monopod/node/drain"
)

// TestAMachineIsNotDrainedByADamagedFile: what cannot be read says nothing, and can be replaced and removed.
func TestAMachineIsNotDrainedByADamagedFile(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "drain.json")
		s := drain.NewStore(path, "boot")
		for _, next := range []drain.State{{}, {Cordoned: true}} {
			if err := s.Save(drain.State{Cordoned: true}); err != nil {
				t.Fatal(err)
			}
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if st, err := s.Load(); st.Cordoned || err == nil && name != "link" {
				t.Errorf("%s: %+v, %v", name, st, err)
			}
			if err := s.Save(next); err != nil {
				t.Errorf("%s: %+v cannot be stored: %v", name, next, err)
			}
			if st, err := s.Load(); st.Cordoned != next.Cordoned || err != nil {
				t.Errorf("%s: stored again: %+v, %v", name, st, err)
			}
		}
	}
}
