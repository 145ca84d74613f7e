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

// meta is stored for Recover.
type meta struct {
	LogPath string `json:"logPath"`
	// Boot is the boot ID at the time of Attach; empty if unknown.
	Boot string `json:"boot,omitempty"`
}

// maxMeta is more than a path and a boot ID need.
const maxMeta = 64 << 10

// Recover attaches the containers found in the directory again. Call it before containerd starts: output that accumulated without a reader
// is in the FIFOs only while the shim lives. Containers whose shim is gone are attached, too; they cost little until Finish is called for
// them.
//
// Damage affects only one container: it is not attached, its files are kept, and the error names it. The owner, who knows its log path,
// calls Attach for it. Files of an earlier boot are removed; foreign files are not touched.
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
		return errors.New("it is not a directory and is left alone")
	}
	dir := filepath.Join(c.dir, id)
	b, err := atomicfile.Read(filepath.Join(dir, metaName), maxMeta)
	if errors.Is(err, fs.ErrNotExist) {
		// Attach was interrupted before it returned, so no task can use these FIFOs.
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
		return os.RemoveAll(dir) // none of its pods run
	}
	_, _, err = c.Attach(id, m.LogPath)
	return err
}

// prepare creates the directory of a container. meta.json is written last: while it is missing, Attach has not returned.
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
	// The directory is usually on a tmpfs, where syncing costs nothing.
	return atomicfile.Write(filepath.Join(dir, metaName), b, 0o600)
}

// makeFIFO creates a FIFO, unless it exists. Any other file of that name is replaced: output through it is lost in any case.
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
