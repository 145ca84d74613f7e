package shim

import (
	"errors"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile"
	"monopod/internal/atomicfile/damagetest"
)

// TestDamagedAndMissingExitRecordsAreDifferentErrors: a reader must not wait for a damaged record to be replaced.
func TestDamagedAndMissingExitRecordsAreDifferentErrors(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "id.json")
		if err := errors.Join(writeExitRecord(path, ExitRecord{ExitCode: 7}), spoil(path)); err != nil {
			t.Fatal(err)
		}
		if r, err := ReadExitRecord(path); !errors.Is(err, atomicfile.ErrDamaged) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
