package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// files are the names in a directory.
func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestAFileIsMadeAndReplacedWithItsMode(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"f", strings.Repeat("n", 255)} {
		path := filepath.Join(dir, name)
		for _, w := range []struct {
			text string
			mode fs.FileMode
		}{{"first", 0o600}, {"", 0o644}, {"the third one", 0o666}} {
			if err := Write(path, []byte(w.text), w.mode); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != w.text {
				t.Errorf("%q is in the file, %q was written (%v)", got, w.text, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode() != w.mode {
				t.Errorf("the file has mode %v, want %v (%v)", info.Mode(), w.mode, err)
			}
		}
	}
	if got, want := files(t, dir), "f "+strings.Repeat("n", 255); got != want {
		t.Errorf("there are the files %s", got)
	}
}

func TestWhoHasTheOldFileOpenKeepsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	if n, _ := f.Read(b[:]); string(b[:n]) != "old" {
		t.Errorf("the old file says %q", b[:n])
	}
}

func TestAWriteThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "f"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "f", strings.Repeat("n", 256)), []byte("x"), 0o600); err == nil {
		t.Error("a name that is too long was written")
	}
	if got := files(t, filepath.Join(dir, "f")); got != "" {
		t.Errorf("there are the files %s", got)
	}
	if err := Write(filepath.Join(dir, "none", "f"), []byte("x"), 0o600); err == nil {
		t.Error("a directory that is not there was written to")
	}
}

func TestWhatKilledWritesLeftIsSweptAway(t *testing.T) {
	dir := t.TempDir()
	if err := Sweep(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{".tmp-123", ".tmpfile", "f"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir); err != nil || files(t, dir) != ".tmpfile f" {
		t.Errorf("left: %s, %v", files(t, dir), err)
	}
}

func TestDirectoriesAreMadeForTheirOwnerOnly(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "c")
	for range 2 {
		if err := MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, filepath.Join(root, "a")} {
		if info, err := os.Stat(d); err != nil || info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s: %v (%v)", d, info.Mode(), err)
		}
	}
	if err := Write(filepath.Join(root, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"f", "f/below"} {
		if err := MkdirAll(filepath.Join(root, d)); err == nil {
			t.Errorf("%s is no directory, but no error says so", d)
		}
	}
}

func TestAbandonedFilesAreSweptWhileOthersWrite(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{
		TempPrefix + "old": time.Hour, TempPrefix + "young": time.Second, TempPrefix + "later": -time.Hour, ".other": time.Hour, "file": time.Hour,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, now, now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, TempPrefix+"dir"), 0o700), os.Symlink("file", filepath.Join(dir, TempPrefix+"link"))); err != nil {
		t.Fatal(err)
	}
	if err := SweepOld(dir, now, TempPrefix); err != nil {
		t.Error(err)
	}
	if got, want := files(t, dir), ".other .tmp-dir .tmp-later .tmp-link .tmp-young file"; got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
	if err := SweepOld(dir, now.Add(time.Hour), "."); err != nil || files(t, dir) != ".tmp-dir .tmp-later .tmp-link file" {
		t.Errorf("later are %s, %v", files(t, dir), err)
	}
	for _, none := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "file")} {
		if err := SweepOld(none, now, "."); err != nil {
			t.Error(err)
		}
	}
}
