package rollout

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"monopod/manifests"
	"monopod/runner/rollout/packed"
)

// text returns a manifest as it is read from disk.
func text(json string) (m packed.Manifest) {
	_ = m.UnmarshalJSON([]byte(json)) // it never fails
	return m
}

func sample(number int) *State {
	return &State{
		Revisions: []Revision{
			{Number: number - 1, Hash: "a", Manifest: text(`{"kind":"Pod"}`), Outcome: Ready, Accepted: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Images: map[string]string{"c": "sha256:1"}},
			{Number: number, Hash: "b", Manifest: text(`{"kind":"Pod","x":1}`), Outcome: Failed, Reason: "why\nnot", Origin: manifests.Origin{Source: "file", File: "/m/a.yaml", Line: 3}},
		},
		Wanted: number, Active: number - 1, Wave: 2, Base: 1, Trial: &Trial{Boot: "b", Began: 5, ReadyAt: 7},
		Rollback: &Rollback{Kind: Automatic, From: number, Reason: "why", Wave: 2},
	}
}

// TestStatesAreStoredInOrder checks when each state was renamed.
func TestStatesAreStoredInOrder(t *testing.T) {
	s := NewStore(fastDir(t))
	var entries []Entry
	for i := range 2 * atOnce {
		entries = append(entries, Entry{Key: manifests.Key{Namespace: "ns", Name: fmt.Sprintf("pod%d", i*37%(2*atOnce))}, State: sample(2)})
	}
	if _, err := s.Save(entries); err != nil {
		t.Fatal(err)
	}
	var last int64
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(s.path(e.Key), stateFile), &st); err != nil {
			t.Fatal(err)
		}
		at := st.Ctim.Nano()
		if at < last {
			t.Fatalf("%s was stored before the one that comes before it", e.Key)
		}
		last = at
	}
}

func TestLoadReturnsSavedStates(t *testing.T) {
	s := NewStore(filepath.Join(fastDir(t), "root", "revisions"))
	if all, err := s.Load(); err != nil || len(all) > 0 {
		t.Fatalf("%v, %v", all, err)
	}
	want := map[manifests.Key]*State{}
	var entries []Entry
	for i := range 3 * atOnce {
		key := manifests.Key{Namespace: fmt.Sprintf("ns%d", i%3), Name: fmt.Sprintf("pod%d", i)}
		want[key] = sample(i + 2)
		entries = append(entries, Entry{Key: key, State: want[key]})
	}
	if _, err := s.Save(entries); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load()
	if err != nil || !cmp.Equal(got, want) {
		t.Fatalf("%v: %s", err, cmp.Diff(want, got))
	}
	other := NewStore(filepath.Join(fastDir(t), "root", "revisions"))
	if _, err := other.SaveUnordered(entries); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Load(); err != nil || !cmp.Equal(got, want) {
		t.Fatalf("without an order: %v: %s", err, cmp.Diff(want, got))
	}
	gone := entries[0].Key
	if err := s.Remove(Entry{Key: gone}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(); err != nil || got[gone] != nil || len(got) != len(want)-1 {
		t.Fatalf("%v: %d", err, len(got))
	}
	_ = filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is for everybody: %v", path, info.Mode())
		}
		return nil
	})
}

// TestTornStateIsDetected truncates a state at each length, and changes each of its bytes.
func TestTornStateIsDetected(t *testing.T) {
	s := NewStore(t.TempDir())
	key := manifests.Key{Namespace: "ns", Name: "pod"}
	path := filepath.Join(s.path(key), stateFile)
	if _, err := s.Save([]Entry{{Key: key, State: sample(4)}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		if _, err := decode(b); err == nil {
			t.Errorf("%s: it is taken for whole", what)
		}
	}
	for n := range len(whole) - 1 { // it is complete without the last newline
		check(fmt.Sprintf("cut at %d", n), whole[:n])
		b := []byte(string(whole))
		b[n] ^= 0x10
		check(fmt.Sprintf("byte %d changed", n), b)
	}
	check("zeros", make([]byte, len(whole)))
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load()
	if err == nil || !strings.Contains(err.Error(), "revisions of pod ns/pod: ") || len(got) > 0 {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := s.Load(); err != nil || len(got) > 0 {
		t.Errorf("it was not set aside: %v, %v", got, err)
	}
	if _, err := s.Save([]Entry{{Key: key, State: sample(5)}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(); err != nil || got[key] == nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestOldStateStaysUntilNewOneIsComplete leaves the files of a power cut during a write.
func TestOldStateStaysUntilNewOneIsComplete(t *testing.T) {
	s := NewStore(t.TempDir())
	key := manifests.Key{Namespace: "ns", Name: "pod"}
	if _, err := s.Save([]Entry{{Key: key, State: sample(4)}}); err != nil {
		t.Fatal(err)
	}
	f, err := s.write(Entry{Key: key, State: sample(9)})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	got, err := s.Load()
	if err != nil || !cmp.Equal(got[key], sample(4)) {
		t.Errorf("%v: %s", err, cmp.Diff(sample(4), got[key]))
	}
	if _, err := os.Stat(f.Name()); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", f.Name(), err)
	}
}

func TestFailedSaveStopsNoOther(t *testing.T) {
	s := NewStore(t.TempDir())
	bad, fine := manifests.Key{Namespace: "ns", Name: "bad"}, manifests.Key{Namespace: "ns", Name: "fine"}
	if _, err := s.Save([]Entry{{Key: fine, State: sample(4)}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(bad), nil, 0o600); err != nil { // a file instead of its directory
		t.Fatal(err)
	}
	failed, err := s.Save([]Entry{{Key: bad, State: sample(2)}, {Key: fine, State: sample(5)}})
	if err == nil || len(failed) != 1 || failed[0].Key != bad || !strings.Contains(err.Error(), "ns/bad") || strings.Contains(err.Error(), "ns/fine") {
		t.Errorf("%v, %v", failed, err)
	}
	if got, _ := s.Load(); !cmp.Equal(got[fine], sample(5)) {
		t.Errorf("%s", cmp.Diff(sample(5), got[fine]))
	}
}

// TestLateWriteDoesNotReplaceNewerState writes a state and starts a later one before the first is renamed.
func TestLateWriteDoesNotReplaceNewerState(t *testing.T) {
	s := NewStore(t.TempDir())
	key := manifests.Key{Namespace: "ns", Name: "pod"}
	late := Entry{Key: key, State: sample(2), Number: 1}
	f, err := s.write(late)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save([]Entry{{Key: key, State: sample(3), Number: 3}}); err != nil {
		t.Fatal(err)
	}
	if err := s.settle(late, f); err != nil {
		t.Error(err)
	}
	if _, err := s.Save([]Entry{{Key: key, State: sample(2), Number: 2}}); err != nil {
		t.Error(err)
	}
	if err := s.Remove(Entry{Key: key, Number: 2}); err != nil {
		t.Error(err)
	}
	if names := files(t, s.dir); len(names) != 1 {
		t.Errorf("there are %v", names)
	}
	if got, err := s.Load(); err != nil || !cmp.Equal(got[key], sample(3)) {
		t.Errorf("%v: %s", err, cmp.Diff(sample(3), got[key]))
	}
	if err := s.Remove(Entry{Key: key, Number: 4}); err != nil {
		t.Error(err)
	}
	if names := files(t, s.dir); len(names) != 0 || len(s.newest) != 0 {
		t.Errorf("there are %v, and numbers %v", names, s.newest)
	}
}
