package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Listen opens the unix socket of the API for root only. It replaces the file of a process that has ended, and fails if another process
// accepts connections on it. Close of the listener removes the file.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("directory of socket: %w", err)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("socket %s: a file of another type exists; remove it or set another socket", path)
	case answers(path):
		return nil, fmt.Errorf("socket %s: another process answers on it; set another socket", path)
	}
	// The final name must never belong to a socket that others may open: bind elsewhere, restrict, rename.
	tmp := filepath.Join(filepath.Dir(path), ".s"+strconv.Itoa(os.Getpid()))
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), ln.Close(), os.Remove(tmp))
	}
	return &listener{UnixListener: ln, path: path}, nil
}

// answers reports whether a process listens on the socket.
func answers(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

type listener struct {
	*net.UnixListener
	path string
}

// Close stops listening and removes the socket's file.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	if rm := os.Remove(l.path); !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}
