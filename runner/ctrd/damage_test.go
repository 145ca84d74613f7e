package ctrd

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile"
	"monopod/internal/atomicfile/damagetest"
)

// TestADamagedNoteOfAShutdownLeavesAllInDoubt, and the next run can write its own.
func TestADamagedNoteOfAShutdownLeavesAllInDoubt(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		b := &shutdownBook{path: filepath.Join(t.TempDir(), shutdownFile), write: atomicfile.Write, shutdown: shutdown{Boot: "now", Clean: true}}
		if err := errors.Join(b.writeLocked(), spoil(b.path)); err != nil {
			t.Fatal(err)
		}
		b.shutdown = readShutdown(b.path).next("now")
		if !b.Doubt {
			t.Errorf("%s: %+v", name, b.shutdown)
		}
		if untold, err := b.begin(); untold != nil || err != nil {
			t.Errorf("%s: %v, %v", name, untold, err)
		}
	}
}

// TestAPidThatCannotBeReadIsNone: the process namespace is then made again.
func TestAPidThatCannotBeReadIsNone(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), pidFile)
		if err := errors.Join(os.WriteFile(path, []byte("1\n"), 0o600), spoil(path)); err != nil {
			t.Fatal(err)
		}
		if pid, err := readPid(path); err == nil && name != "truncated" || pid < 0 {
			t.Errorf("%s: %d, %v", name, pid, err)
		}
	}
}

// TestDamagedFilesOfAContainerAreDropped: those that keep runc from deleting it, and no others.
func TestDamagedFilesOfAContainerAreDropped(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		r := &Runtime{cfg: Config{StateDirectory: t.TempDir(), Namespace: "monopod"}, log: slog.New(slog.DiscardHandler)}
		for _, id := range []string{"a", "b"} {
			for _, path := range []string{r.path("runc", "monopod", id, "state.json"), r.path("containerd", "io.containerd.runtime.v2.task", "monopod", id, "log.json")} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{}"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r.dropDamaged("a") {
			t.Errorf("%s: sound files were dropped", name)
		}
		if err := spoil(r.path("runc", "monopod", "a", "state.json")); err != nil {
			t.Fatal(err)
		}
		if !r.dropDamaged("a") {
			t.Errorf("%s: nothing was dropped", name)
		}
		if _, err := os.Lstat(r.path("runc", "monopod", "a")); err == nil {
			t.Errorf("%s: runc still knows the container", name)
		}
		if _, err := os.Stat(r.path("runc", "monopod", "b", "state.json")); err != nil {
			t.Errorf("%s: another container: %v", name, err)
		}
	}
}

// TestWhatIsRemovedMayBeAnything: no damage keeps a container from being removed.
func TestWhatIsRemovedMayBeAnything(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "id.json")
		if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), spoil(path)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(removeFile(path), removeFile(path)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it is still there: %v", name, err)
		}
	}
}
