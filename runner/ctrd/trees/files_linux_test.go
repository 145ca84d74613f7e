package trees

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile/damagetest"
)

// TestWhatIsRemovedMayBeAnything checks that damaged files do not block the removal of a container.
func TestWhatIsRemovedMayBeAnything(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "id.json")
		if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), spoil(path)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(RemoveFile(path), RemoveFile(path)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it is still there: %v", name, err)
		}
	}
}

func TestARemovedTreeIsGoneAndAMissingOneIsFine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("still there")
	}
}
