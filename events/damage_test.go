package events

import (
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile/damagetest"
)

// TestADamagedRecordCostsWhatWasInIt: events are recorded again, also after the next start.
func TestADamagedRecordCostsWhatWasInIt(t *testing.T) {
	for _, file := range []string{logFile, oldFile, newFile} {
		for name, spoil := range damagetest.Ways() {
			m := newMachine(t)
			put(t, m.dir, file, []byte("a line\n"))
			if err := spoil(filepath.Join(m.dir, file)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				m.session(func(r *Recorder) { warn(r, "web", "Failed", "a") })
			}
			m.session(func(r *Recorder) {
				if len(r.List(Filter{})) == 0 {
					t.Errorf("%s, %s: nothing is recorded\n%s", file, name, m.log)
				}
			})
		}
	}
}
