package embed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// socketDir is the directory of shim sockets, below sockets(state).
const socketDir = "s"

// shortSockets has the sockets of instances whose state directory has a long path.
const shortSockets = "/run/monopod-sockets"

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
		path := filepath.Join(dir, socketDir, e.Name())
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
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
	_ = os.Remove(filepath.Join(dir, "containerd.sock.ttrpc"))
	for _, d := range []string{filepath.Join(dir, socketDir), dir, shortSockets} {
		_ = os.Remove(d) // fails while something is in it, as it should
	}
}
