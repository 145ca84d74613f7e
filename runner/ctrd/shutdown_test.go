package ctrd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"monopod/internal/atomicfile"
	"monopod/internal/atomicfile/damagetest"
)

func TestWhatIsInDoubtAfterAStart(t *testing.T) {
	sound := []string{"a"}
	for name, c := range map[string]struct{ last, want shutdown }{
		"the first run":                      {shutdown{}, shutdown{Boot: "now"}},
		"stopped":                            {shutdown{Boot: "now", Clean: true}, shutdown{Boot: "now"}},
		"killed":                             {shutdown{Boot: "now"}, shutdown{Boot: "now"}},
		"stopped, rebooted":                  {shutdown{Boot: "then", Clean: true}, shutdown{Boot: "now"}},
		"power cut":                          {shutdown{Boot: "then"}, shutdown{Boot: "now", Doubt: true}},
		"power cut, then killed":             {shutdown{Boot: "now", Doubt: true, Sound: sound}, shutdown{Boot: "now", Doubt: true, Sound: sound}},
		"power cut, stopped, rebooted":       {shutdown{Boot: "then", Clean: true, Doubt: true, Sound: sound}, shutdown{Boot: "now", Doubt: true, Sound: sound}},
		"a power cut before all were sound":  {shutdown{Boot: "then", Doubt: true, Sound: sound}, shutdown{Boot: "now", Doubt: true}},
		"a file that cannot be read is none": {shutdown{Boot: "unknown"}, shutdown{Boot: "now", Doubt: true}},
	} {
		if got := c.last.next("now"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestARunBeginsOnAFullDiskAndLeavesAllInDoubt(t *testing.T) {
	for _, before := range []string{`{"boot":"then","clean":true}`, ""} {
		b := &shutdownStore{path: filepath.Join(t.TempDir(), shutdownFile), shutdown: shutdown{Boot: "now"}}
		if before != "" {
			if err := os.WriteFile(b.path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b.write = func(string, []byte, fs.FileMode) error { return syscall.ENOSPC }
		if unwritten, err := b.begin(); err != nil || !errors.Is(unwritten, syscall.ENOSPC) {
			t.Errorf("after %q: %v, %v", before, unwritten, err)
		}
		if last := readShutdown(b.path); !last.next("later").Doubt {
			t.Errorf("after %q: nothing is in doubt: %+v", before, last)
		}
		b.write = atomicfile.Write
		if unwritten, err := b.begin(); err != nil || unwritten != nil {
			t.Errorf("with room: %v, %v", unwritten, err)
		}
		if last := readShutdown(b.path); last.Boot != "now" || last.next("now").Doubt {
			t.Errorf("with room: %+v", last)
		}
	}
}

// TestADamagedNoteOfAShutdownLeavesAllInDoubt, and the next run can write its own.
func TestADamagedNoteOfAShutdownLeavesAllInDoubt(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		b := &shutdownStore{path: filepath.Join(t.TempDir(), shutdownFile), write: atomicfile.Write, shutdown: shutdown{Boot: "now", Clean: true}}
		if err := errors.Join(b.writeLocked(), spoil(b.path)); err != nil {
			t.Fatal(err)
		}
		b.shutdown = readShutdown(b.path).next("now")
		if !b.Doubt {
			t.Errorf("%s: %+v", name, b.shutdown)
		}
		if unwritten, err := b.begin(); unwritten != nil || err != nil {
			t.Errorf("%s: %v, %v", name, unwritten, err)
		}
	}
}
