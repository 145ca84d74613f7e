package saved

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/atomicfile/damagetest"
	"monopod/runner/workload/revisions"
)

// TestDamagedStateIsSetAside checks that the state starts empty, is reported once, and is stored again.
func TestDamagedStateIsSetAside(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "workloads.json")
		want := State{Jobs: map[string]*Job{"a": {}}, Crons: map[string]*CronJob{}}
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

func TestDamagedHistoriesLoseNoJobs(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "workloads.json")
		want := NewState()
		want.Jobs["a"], want.Histories["b"] = &Job{}, &revisions.History{Revisions: []*revisions.Revision{{Number: 1, Template: json.RawMessage("{}")}}}
		history := strings.TrimSuffix(path, ".json") + "-history.json"
		if err := errors.Join(NewStore(path).Save(want), spoil(history)); err != nil {
			t.Fatal(err)
		}
		s := NewStore(path)
		st, err := s.Load()
		if err == nil || len(st.Jobs) != 1 || st.Histories == nil || len(st.Histories) > 0 {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
		if err := s.Save(want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if st, err := NewStore(path).Load(); err != nil || len(st.Jobs) != 1 || len(st.Histories) != 1 {
			t.Errorf("%s: stored again: %+v, %v", name, st, err)
		}
	}
	path := filepath.Join(t.TempDir(), "workloads.json")
	if err := os.WriteFile(strings.TrimSuffix(path, ".json")+"-history.json", []byte(`{"a":null,"b":{"revisions":[null]},"c":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, err := NewStore(path).Load(); err != nil || len(st.Histories) != 1 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestInvalidStateIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workloads.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewStore(path).Load(); err == nil {
		t.Error("half a file was read")
	}
	if _, err := os.Stat(path + ".broken"); err != nil {
		t.Error(err)
	}
	if st, err := NewStore(path).Load(); err != nil || len(st.Jobs) != 0 {
		t.Errorf("%v %v", st, err)
	}
}
