package shutdown

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"monopod/internal/atomicfile"
	"monopod/internal/boottime"
)

// Marker is the file that records a shutdown of the machine, so that an agent that starts meanwhile does not start pods. Its name and content
// are a kubelet's, with the id of the boot that the shutdown ends.
type Marker struct{ Path, Boot string }

// MarkerIn returns the Marker in a root directory for a boot of the machine.
func MarkerIn(rootDirectory, boot string) Marker {
	return Marker{Path: filepath.Join(rootDirectory, "graceful_node_shutdown_state"), Boot: boot}
}

// record is the content of the file.
type record struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime,omitzero"`
	Boot      string    `json:"boot"`
}

// Began reports whether a shutdown has begun in this boot of the machine. A file that cannot be read counts as none.
func (m Marker) Began() bool {
	r, err := m.read()
	return err == nil && r.Boot == m.Boot
}

// Remove forgets the shutdown: it was cancelled. Errors are ignored, because the file does not count after the next boot.
func (m Marker) Remove() { _ = os.Remove(m.Path) }

func (m Marker) read() (r record, err error) {
	b, err := atomicfile.Read(m.Path, atomicfile.MaxState)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

func (m Marker) begin() error {
	return m.write(record{StartTime: boottime.Now().Wall, Boot: m.Boot})
}

func (m Marker) end() error {
	r, err := m.read()
	if errors.Is(err, fs.ErrNotExist) { // the shutdown was cancelled meanwhile
		return nil
	}
	if err == nil {
		r.EndTime = boottime.Now().Wall
		err = m.write(r)
	}
	return err
}

func (m Marker) write(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(m.Path, append(b, '\n'), 0o600)
}
