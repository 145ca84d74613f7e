// Package dirlock holds the locks of the directories of an instance, so that no two of them use one.
//
// It must not know what is in the directories. It has no goroutines.
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

// LockName is the file in rootDirectory and stateDirectory that a running instance holds locked. The kernel
// gives the lock back when the process ends, however it ends.
const LockName = "monopod.pid"

// Locks are the locks of an instance.
type Locks []*os.File

// TakeLocks locks each directory for this process, making it if necessary. A lock that somebody holds is
// waited for as long as patience.
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

// heldError says that somebody else holds a lock.
type heldError struct{ error }

func IsHeld(err error) bool {
	_, held := errors.AsType[heldError](err)
	return held
}

// openTries is how often a directory is made again that somebody removes before the lock is in it.
const openTries = 20

// openLock opens the file to lock. A slot of a run may be cleaned up by its last user at that moment.
func openLock(dir string) (f *os.File, err error) {
	for range openTries {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			f, err = atomicfile.OpenLock(filepath.Join(dir, LockName), 0o644)
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
		return nil, heldError{fmt.Errorf("another monopod%s uses %s; stop it, or give this one a rootDirectory, stateDirectory and podCIDR of its own", holder(f), dir)}
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

// isAt says that a path leads to an open file.
func isAt(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// LockPatience is how long a process that was just killed may take to be gone: whoever kills one and starts the
// next need not wait in between.
const LockPatience = time.Second

// flock locks a file, or says after patience who did not let go of it: nothing else tells that a lock is free.
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

// holder names the process that holds the lock, as far as its file says so.
func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	pid := strings.TrimSpace(string(b))
	if err != nil || pid == "" {
		return ""
	}
	return " (pid " + pid + ")"
}

// Release gives the locks back, also where a process that is being started has them still, until it becomes another program.
func (l Locks) Release() {
	for _, f := range l {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}
}
