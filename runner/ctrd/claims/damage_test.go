package claims

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile"
	"monopod/internal/atomicfile/damagetest"
)

// TestADamagedBookIsSetAside checks that the book is empty afterwards, and can be written.
func TestADamagedBookIsSetAside(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		dir := t.TempDir()
		path := filepath.Join(dir, bookFile)
		if err := errors.Join(atomicfile.Write(path, []byte(`{"default/c": {}}`), 0o600), spoil(path)); err != nil {
			t.Fatal(err)
		}
		b, err := OpenBook(dir, func(string) bool { return false })
		if err == nil || len(b.entries) > 0 {
			t.Errorf("%s: %v, %v", name, b.entries, err)
		}
		if _, err := os.Lstat(path + ".broken"); err != nil {
			t.Errorf("%s: it is not kept: %v", name, err)
		}
		if b, err = OpenBook(dir, func(string) bool { return false }); err != nil || b.entries == nil {
			t.Errorf("%s: at the next start: %v", name, err)
		}
	}
}
