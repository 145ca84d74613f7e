// Package atomicfile replaces files so that whoever reads one, also after a power cut, finds the old content or the
// new, never a part.
//
// It owns the file it writes and a temporary one beside it. It has no goroutines.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// TempPrefix begins the names of temporary files: they are not named after the file, as names may have all the length
// there is.
const TempPrefix = ".tmp-"

// Write makes a file of that content and mode, whatever the umask; it is on the disk when Write returns nil. On an error
// the file is the old one, or the new one that may not outlive a power cut. The temporary file, whose name begins with a
// dot, stays only when the process is killed.
func Write(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, TempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = Replace(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(dir)
}

// Replace renames a file. A directory in its place, which rename does not replace, is set aside: else what is stored there
// could never be stored again.
func Replace(from, to string) error {
	err := os.Rename(from, to)
	if info, serr := os.Lstat(to); err != nil && serr == nil && info.IsDir() {
		if err = SetAside(to, to+damagedSuffix); err == nil {
			err = os.Rename(from, to)
		}
	}
	return err
}

// Remove removes a file, and sets a directory in its place aside. One that is missing is removed.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if info, serr := os.Lstat(path); err != nil && serr == nil && info.IsDir() {
		return SetAside(path, path+damagedSuffix)
	}
	return err
}

// damagedSuffix ends the name that a directory in the place of a file gets.
const damagedSuffix = ".damaged"

// Sweep removes the temporary files in a directory that processes left which were killed. Nobody may be writing there.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), TempPrefix) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// abandoned is how old a temporary file must be to belong to a process that was killed: it is written in no time.
const abandoned = time.Minute

// SweepOld removes files in a directory that processes left which were killed: those whose names begin with one of the
// prefixes, and that are a minute old at now. Others may be writing there. Links are not followed, directories stay.
func SweepOld(dir string, now time.Time, prefixes ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		begins := func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) }
		if !e.Type().IsRegular() || !slices.ContainsFunc(prefixes, begins) {
			continue
		}
		if info, err := e.Info(); err != nil || now.Sub(info.ModTime()) < abandoned {
			continue // gone by now, or not abandoned
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// MkdirAll makes a directory and its parents, as far as they are not there, for their owner only. They are on the disk
// when it returns nil.
func MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && (info != nil || !errors.Is(err, fs.ErrExist)) {
		return err
	}
	return SyncDir(parent)
}

// SyncDir puts the names in a directory on the disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
