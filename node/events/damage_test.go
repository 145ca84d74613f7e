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
			full := store{dir: m.dir}
			for range 2 { // the first makes the log the old one
				if err := full.turn(nil); err != nil {
					t.Errorf("%s, %s: once the file is full, nothing is recorded: %v", file, name, err)
				}
			}
			full.close()
			if _, err := full.load(); err != nil {
				t.Errorf("%s, %s: once the file was full: %v", file, name, err)
			}
		}
	}
}
