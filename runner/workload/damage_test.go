package workload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile/damagetest"
)

// TestDamagedStateIsSetAside checks that the state starts empty, is reported once, and is stored again.
func TestDamagedStateIsSetAside(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "workloads.json")
		want := State{Jobs: map[string]*JobState{"a": {}}, Crons: map[string]*CronState{}}
		if err := errors.Join(NewStore(path).Save(want), spoil(path)); err != nil {
			t.Fatal(err)
		}
		s := NewStore(path)
		st, err := s.Load()
		if err == nil || len(st.Jobs) > 0 || st.Jobs == nil || st.Crons == nil {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
		if _, err := os.Lstat(path + ".broken"); err != nil {
			t.Errorf("%s: it is not kept: %v", name, err)
		}
		if err := s.Save(want); err != nil {
			t.Errorf("%s: it cannot be stored again: %v", name, err)
		}
		if st, err := NewStore(path).Load(); err != nil || len(st.Jobs) != 1 {
			t.Errorf("%s: stored again: %+v, %v", name, st, err)
		}
	}
}
