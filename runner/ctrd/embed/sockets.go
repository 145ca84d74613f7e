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

// socketDir is where the shims' sockets are, below sockets(state).
const socketDir = "s"

// shortSockets holds the sockets of instances whose state directory is too long for them.
const shortSockets = "/run/monopod-sockets"

// maxState is how long the path of a state directory may be to hold sockets: those of the shims have names of
// 64 digits, and the path of a unix socket has 107 characters at most.
const maxState = 107 - 64 - len("/"+socketDir+"/")

// sockets returns the directory for the sockets of a state directory: itself, or when it is too long one with
// a short name, which is the same each time.
func sockets(state string) string {
	if len(state) <= maxState {
		return state
	}
	sum := sha256.Sum256([]byte(state))
	return filepath.Join(shortSockets, hex.EncodeToString(sum[:8]))
}

// makeTries is how often a directory is made again whose parent is removed before it is in it.
const makeTries = 1000

// makeSockets makes the directory for sockets. Another instance that ends may remove shortSockets at that moment, because
// nothing is in it yet.
func makeSockets(dir string) (err error) {
	for range makeTries {
		if err = os.MkdirAll(dir, 0o711); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// sweepSockets removes the sockets of shims that were killed: nobody listens on them.
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

// removeSockets removes what is left of sockets, and their directory when it is not the state directory,
// unless a shim still listens there.
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
