package logs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
)

// meta is what Recover needs to know.
type meta struct {
	LogPath string `json:"logPath"`
	// Boot is the boot ID when the container was attached; empty if it was not known.
	Boot string `json:"boot,omitempty"`
}

// maxMeta is more than a path and a boot ID need.
const maxMeta = 64 << 10

// Recover re-attaches the containers found in the directory. Call it before containerd starts: output
// that piled up while nobody read is in the FIFOs only as long as the shim lives. Containers whose shim is
// gone are attached too; they cost little until Finish is called for them.
//
// Damage concerns one container only: it is not attached, its files stay, and the error says so. The owner, who knows
// where its output goes, calls Attach for it. What an earlier boot has left is removed; files that are not ours are not touched.
func (c *Collector) Recover() error {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	if err != nil {
		errs = append(errs, fmt.Errorf("recover logs: %w", err))
	}
	for _, e := range entries {
		if err := c.recoverOne(e); err != nil {
			errs = append(errs, fmt.Errorf("recover logs of %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

func (c *Collector) recoverOne(e fs.DirEntry) error {
	id := e.Name()
	if !e.IsDir() {
		return errors.New("it is no directory and left alone")
	}
	dir := filepath.Join(c.dir, id)
	b, err := atomicfile.Read(filepath.Join(dir, metaName), maxMeta)
	if errors.Is(err, fs.ErrNotExist) {
		// Attach was cut off before it returned: no task can have been made with these FIFOs.
		return os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	var m meta
	if err := json.Unmarshal(b, &m); err != nil || !filepath.IsAbs(m.LogPath) {
		return fmt.Errorf("%s is damaged: %.100q", metaName, b)
	}
	if m.Boot != "" && c.boot != "" && m.Boot != c.boot {
		return os.RemoveAll(dir) // nothing of it runs
	}
	_, _, err = c.Attach(id, m.LogPath)
	return err
}

// prepare makes the directory of a container. meta.json is last: where it is missing, nothing was handed out.
func (c *Collector) prepare(dir, logPath string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{stdoutName, stderrName} {
		if err := makeFIFO(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	b, err := json.Marshal(meta{LogPath: logPath, Boot: c.boot})
	if err != nil {
		return err
	}
	// Its directory is in memory as a rule, where syncing costs nothing.
	return atomicfile.Write(filepath.Join(dir, metaName), b, 0o600)
}

// makeFIFO makes a FIFO, unless there is one. What else has its name is replaced: output through it is lost either way.
func makeFIFO(path string) error {
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() == fs.ModeNamedPipe {
			return nil
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return nil
}
