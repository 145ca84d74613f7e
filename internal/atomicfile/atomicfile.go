// Package atomicfile replaces files atomically and durably: readers find the old or the new content, also after a power loss.
//
// It owns the file and a temporary one in the same directory; it must not leave a partial file.
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

// TempPrefix begins the names of temporary files. They do not contain the name of the file, which may have the maximum length.
const TempPrefix = ".tmp-"

// Write creates or replaces a file with that content and mode, regardless of the umask. It is synced when Write returns nil. After an error the
// file is the old one, or the new one that may be lost by a power loss. The temporary file, a hidden one, remains only if the process is killed.
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

// Replace renames a file. A directory in place of the target, which rename cannot replace, is set aside.
func Replace(from, to string) error {
	err := os.Rename(from, to)
	if info, serr := os.Lstat(to); err != nil && serr == nil && info.IsDir() {
		if err = SetAside(to, to+damagedSuffix); err == nil {
			err = os.Rename(from, to)
		}
	}
	return err
}

// Remove removes a file, and sets a directory in its place aside. A missing file is not an error.
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

// damagedSuffix ends the names of directories that were set aside.
const damagedSuffix = ".damaged"

// Sweep removes the temporary files of killed processes in a directory, to which no other process may be writing.
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

// abandoned is the minimum age of temporary files of killed processes. Writing one takes much less time.
const abandoned = time.Minute

// SweepOld removes temporary files of killed processes in a directory: those with one of the prefixes that are a minute old at now. Other
// processes may be writing. Links are not followed, and directories are kept.
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

// MkdirAll creates a directory and its missing parents, accessible by the owner only. They are synced when it returns nil.
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

// SyncDir syncs the entries of a directory.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
