package embed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketDir is the directory of shim sockets, below sockets(state).
const socketDir = "s"

// shortSockets has the sockets of instances whose state directory has a long path.
const shortSockets = "/run/monopod-sockets"

// ttrpcSocket is the socket of containerd for its shims, below sockets(state).
const ttrpcSocket = "containerd.sock.ttrpc"

// maxState limits the path of a state directory that contains the sockets. Shim sockets have names of 64 digits, and the path of a unix socket
// has at most 107 characters.
const maxState = 107 - 64 - len("/"+socketDir+"/")

// sockets returns the directory for the sockets of a state directory: itself, or one with a short and stable name if its path is too long.
func sockets(state string) string {
	if len(state) <= maxState {
		return state
	}
	sum := sha256.Sum256([]byte(state))
	return filepath.Join(shortSockets, hex.EncodeToString(sum[:8]))
}

// holdSockets creates the directory for sockets, and locks it until the file is closed: no other instance removes it until then.
func holdSockets(dir string) (f *os.File, err error) {
	for range makeTries {
		if err = makeSockets(dir); err != nil {
			return nil, err
		}
		if f, err = os.Open(dir); errors.Is(err, fs.ErrNotExist) { // another one has just removed it
			continue
		} else if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
		if err == nil && isAt(f, dir) {
			return f, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
		}
	}
	return nil, fmt.Errorf("%s is removed again and again", dir)
}

// isAt reports whether a path refers to an open file.
func isAt(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// sweepOthers removes, from shortSockets, what killed instances left that were never started again.
func sweepOthers(short string) {
	entries, err := os.ReadDir(short)
	if err != nil {
		return // there are none
	}
	for _, e := range entries {
		if e.IsDir() {
			sweepOther(filepath.Join(short, e.Name()))
		}
	}
}

// sweepOther removes the sockets of an instance that does not run. Those of shims that run stay: their pods outlive an instance.
func sweepOther(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || listens(filepath.Join(dir, ttrpcSocket)) { // the latter without the lock: of an older version
		return
	}
	removeSockets(dir, "")
}

// listens reports whether a socket has a listener, as far as can be seen.
func listens(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// makeTries is how often creating the directory is tried again if its parent is removed meanwhile.
const makeTries = 1000

// makeSockets creates the directory for sockets. Another instance that stops may remove shortSockets at the same time, while it is empty.
func makeSockets(dir string) (err error) {
	for range makeTries {
		if err = os.MkdirAll(dir, 0o711); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// sweepSockets removes the sockets of killed shims.
func sweepSockets(dir string) {
	entries, err := os.ReadDir(filepath.Join(dir, socketDir))
	if err != nil {
		return // there are none yet
	}
	for _, e := range entries {
		if path := filepath.Join(dir, socketDir, e.Name()); !listens(path) {
			_ = os.Remove(path)
		}
	}
}

// removeSockets removes stale sockets, and their directory unless it is the state directory or a shim still listens there.
func removeSockets(dir, state string) {
	sweepSockets(dir)
	if dir == state {
		return
	}
	_ = os.Remove(filepath.Join(dir, ttrpcSocket))
	for _, d := range []string{filepath.Join(dir, socketDir), dir, filepath.Dir(dir)} {
		_ = os.Remove(d) // fails while something is in it, as it should
	}
}
