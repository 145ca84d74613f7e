// Package dirlock locks the directories of an instance, so that no two instances use the same one.
//
// It must not know what is in the directories. It starts no goroutines.
package dirlock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"monopod/internal/atomicfile"
)

// LockName is the file in rootDirectory and stateDirectory that a running instance keeps locked. The kernel
// releases the lock when the process ends, however it ends.
const LockName = "monopod.pid"

// Locks are the locks of an instance.
type Locks []*os.File

// TakeLocks locks each directory for this process, and creates missing ones. It waits up to patience for a lock that another
// process holds.
func TakeLocks(patience time.Duration, dirs ...string) (Locks, error) {
	var held Locks
	for _, dir := range dirs {
		f, err := takeLock(patience, dir)
		if err != nil {
			held.Release()
			return nil, err
		}
		held = append(held, f)
	}
	return held, nil
}

// heldError means that another process holds a lock.
type heldError struct{ error }

// IsHeld reports whether the error means that another process holds the lock.
func IsHeld(err error) bool {
	_, held := errors.AsType[heldError](err)
	return held
}

// openTries limits how often a directory is recreated that another process removes before it is locked.
const openTries = 20

// openLock opens the file to lock. A slot of a run may be cleaned up by its last user at that moment.
func openLock(dir string) (f *os.File, err error) {
	for range openTries {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			f, err = atomicfile.OpenLock(filepath.Join(dir, LockName), 0o600) // whoever may open it may lock it
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) { // it was there for MkdirAll, and is gone
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

func takeLock(patience time.Duration, dir string) (*os.File, error) {
	f, err := openLock(dir)
	if err != nil {
		return nil, err
	}
	if err := flock(f, patience); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if heldByStrangers(usersOf("/proc", f), os.Geteuid()) { // since a version that let all users open the file
			if err := os.Remove(f.Name()); err != nil {
				return nil, fmt.Errorf("lock: %w", err)
			}
			return takeLock(patience, dir)
		}
		return nil, heldError{fmt.Errorf("another monopod%s uses %s; stop it, or set another rootDirectory, stateDirectory and podCIDR for this one", holder(f), dir)}
	}
	if !isAt(f, f.Name()) { // its directory was cleaned up while it was waited for
		f.Close()
		return takeLock(patience, dir)
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// isAt reports whether a path refers to an open file.
func isAt(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// LockPatience is how long to wait for a process that has just been killed, so that the next one can be started without
// a pause.
const LockPatience = time.Second

// flock locks a file, or returns after patience which process holds it. It polls, because nothing announces that a lock is free.
func flock(f *os.File, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder returns the process that holds the lock, if the file contains its id.
func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	pid := strings.TrimSpace(string(b))
	if err != nil || pid == "" {
		return ""
	}
	return " (pid " + pid + ")"
}

// Release releases the locks, even if a process that is being started has inherited them and has not executed its program yet.
func (l Locks) Release() {
	for _, f := range l {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}
}
