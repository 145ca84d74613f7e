// Package lockfile holds the lock file of a kubelet (--lock-file): its holder manages the pods of the machine, and can learn that another
// agent wants to.
//
// It must not decide anything about pods. Its only goroutine waits in the kernel for a lock while another process holds it.
package lockfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Lock is a lock that is held. The kernel gives it back when the process ends, however it ends.
type Lock struct {
	file *os.File
	path string
}

// Acquire takes the lock of a file, which it makes if necessary, and waits for it. Before it waits it calls waiting, once. When ctx ends
// first, that is the error. A lock of a file that was taken away meanwhile is none: others have, or will have, that of the next one.
func Acquire(ctx context.Context, path string, waiting func()) (*Lock, error) {
	for waited := false; ; {
		l, err := acquire(ctx, path, func() {
			if !waited {
				waiting()
			}
			waited = true
		})
		if err != nil || l.there() {
			return l, err
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("lock file: %w", err)
		}
	}
}

// acquire takes the lock of the file that the path leads to now.
func acquire(ctx context.Context, path string, waiting func()) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		waiting()
		taken := make(chan error, 1)
		go func() { taken <- flock(f, unix.LOCK_EX) }()
		select {
		case err = <-taken:
		case <-ctx.Done():
			return nil, ctx.Err() // the process ends; the kernel has no way to wait for less
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{file: f, path: path}, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Close gives the lock back.
func (l *Lock) Close() error { return l.file.Close() }

// Contended waits until another process opens or removes the file, and returns which. An error is ctx's, or means that this cannot be
// observed.
func (l *Lock) Contended(ctx context.Context) (how string, err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return "", fmt.Errorf("watch %s: %w", l.path, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer func() { _ = events.Close() }()
	// A file that is open is not deleted when its name is: then its count of links changes.
	const wanted = unix.IN_OPEN | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	if _, err := unix.InotifyAddWatch(fd, l.path, wanted); err != nil && l.there() {
		return "", fmt.Errorf("watch %s: %w", l.path, err)
	}
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	if !l.there() { // before it was watched
		return "removed", nil
	}
	for b := make([]byte, 4096); ; {
		n, err := events.Read(b)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			return "", fmt.Errorf("watch %s: %w", l.path, err)
		}
		switch mask := masks(b[:n]); {
		case !l.there():
			return "removed", nil
		case mask&unix.IN_OPEN != 0:
			return "opened", nil
		}
	}
}

// there reports whether the path still leads to the file.
func (l *Lock) there() bool {
	a, errA := l.file.Stat()
	b, errB := os.Stat(l.path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// masks are what happened, of all events in a buffer.
func masks(b []byte) uint32 {
	all := uint32(0)
	for len(b) >= unix.SizeofInotifyEvent {
		all |= binary.NativeEndian.Uint32(b[4:])
		b = b[unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])):]
	}
	return all
}
