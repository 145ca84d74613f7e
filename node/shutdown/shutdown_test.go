package shutdown

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestGroupOfPriority(t *testing.T) {
	t.Parallel()
	groups := []Group{{Priority: 10}, {Priority: 100}, {Priority: 2000000000}}
	for priority, want := range map[int32]int{-5: 0, 0: 0, 10: 0, 99: 0, 100: 1, 1999999999: 1, 2000000000: 2, 2000001000: 2} {
		if got := groupOf(groups, priority); got != want {
			t.Errorf("%d: group %d, want %d", priority, got, want)
		}
	}
}

func TestProgressStopsGroupAfterGroup(t *testing.T) {
	t.Parallel()
	groups := []Group{{Grace: 20 * time.Second}, {Priority: 2000000000, Grace: 10 * time.Second}}
	for _, tt := range []struct {
		progress *Progress
		priority int32
		grace    time.Duration
		due      bool
	}{
		{&Progress{Groups: groups}, -1, 20 * time.Second, true},
		{&Progress{Groups: groups}, 1999999999, 20 * time.Second, true},
		{&Progress{Groups: groups}, 2000001000, 10 * time.Second, false},
		{&Progress{Groups: groups, Current: 1}, 0, 20 * time.Second, true},
		{Last(groups), 2000001000, 10 * time.Second, true},
	} {
		if grace, due := tt.progress.Due(tt.priority); grace != tt.grace || due != tt.due {
			t.Errorf("group %d, priority %d: %v %v", tt.progress.Current, tt.priority, grace, due)
		}
	}
	if sum := total(groups); sum != 30*time.Second {
		t.Errorf("all groups have %v", sum)
	}
}

func TestMarkerCountsForOneBoot(t *testing.T) {
	t.Parallel()
	m := Marker{Path: filepath.Join(t.TempDir(), "marker"), Boot: "a"}
	other := Marker{Path: m.Path, Boot: "b"}
	expect := func(when string, want bool) {
		t.Helper()
		if m.Began() != want || other.Began() {
			t.Errorf("%s: %v %v", when, m.Began(), other.Began())
		}
	}
	expect("no file", false)
	if err := m.end(); err != nil || m.Began() {
		t.Errorf("end of a cancelled shutdown: %v", err)
	}
	for when, write := range map[string]func() error{"begun": m.begin, "pods have stopped": m.end} {
		if err := m.begin(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		expect(when, true)
	}
	if r, err := m.read(); err != nil || r.StartTime.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
	m.Remove()
	expect("cancelled", false)
	if err := os.WriteFile(m.Path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("damaged", false)
}
