package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OpenLock opens or creates a lock file. Anything else with its name, such as a directory or a dangling link, is set aside, because it would
// keep the program from starting.
func OpenLock(path string, mode fs.FileMode) (*os.File, error) {
	f, err := openLock(path, mode)
	if info, serr := os.Lstat(path); err == nil || serr != nil || info.Mode().IsRegular() {
		return f, err
	}
	if err := setLockAside(path); err != nil {
		return nil, err
	}
	return openLock(path, mode)
}

// Lock opens a file like OpenLock and waits for an exclusive lock, which unlock releases.
func Lock(path string, mode fs.FileMode) (unlock func(), err error) {
	f, err := OpenLock(path, mode)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// flock waits for an exclusive lock, also if signals interrupt it.
func flock(f *os.File) (err error) {
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func openLock(path string, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no regular file", path), f.Close())
	}
	if info.Mode().Perm()&^mode != 0 { // of an earlier version: whoever may open the file may lock it
		if err := f.Chmod(mode); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// setLockAside checks again under a lock of the directory, because a lock file that another process has just created must stay.
func setLockAside(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := flock(dir); err != nil {
		return err
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
		return err
	}
	return SetAside(path, path+damagedSuffix)
}
