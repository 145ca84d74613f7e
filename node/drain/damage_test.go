package drain_test

import (
	"errors"
	"path/filepath"
	"syscall"
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

// TestTheEndOfADrainIsSynced: after a power cut, the machine must not be drained again. A directory that cannot be opened cannot be synced.
func TestTheEndOfADrainIsSynced(t *testing.T) {
	s := drain.NewStore(filepath.Join(t.TempDir(), "drain.json"), "boot")
	if err := s.Save(drain.State{Cordoned: true}); err != nil {
		t.Fatal(err)
	}
	old := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err := s.Save(drain.State{})
	if back := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("the directory is not synced: %v", err)
	}
}
