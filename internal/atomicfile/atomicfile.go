// Package atomicfile replaces files so that whoever reads one, also after a power cut, finds the old content or the
// new, never a part.
//
// It owns the file it writes and a temporary one beside it. It does not make directories, and has no goroutines.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes a file of that content and mode, whatever the umask; it is on the disk when Write returns nil. On an error
// the file is the old one, or the new one that may not outlive a power cut. The temporary file, whose name begins with a
// dot, stays only when the process is killed.
func Write(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".tmp-*") // not named after the file: names may have all the length there is
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
