package shim

import (
	"fmt"

	"github.com/containerd/fifo"
	"golang.org/x/sys/unix"
)

// pipeSize is the capacity of a FIFO for output without a reader, if the system allows that much. The kernel allocates only what is used.
const pipeSize = 1 << 20

// hold opens those of the paths that are FIFOs for reading and writing. Their content then outlives the container's process and the agent,
// and writing to them never fails.
func (w *watcher) hold(paths ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range paths {
		if ok, err := fifo.IsFifo(p); err != nil || !ok {
			continue // empty, a file or a URI: containerd's own code deals with these
		}
		// O_CLOEXEC keeps the descriptor from runc and the container.
		fd, err := unix.Open(p, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			w.releaseLocked()
			return fmt.Errorf("hold fifo %s: %w", p, err)
		}
		w.held = append(w.held, fd)
		growPipe(fd)
	}
	return nil
}

// growPipe halves the requested size until the kernel accepts it (fs.pipe-max-size, fs.pipe-user-pages-*).
func growPipe(fd int) {
	for size := pipeSize; size > 1<<16; size /= 2 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size); err == nil {
			return
		}
	}
}

func (w *watcher) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.releaseLocked()
}

func (w *watcher) releaseLocked() {
	for _, fd := range w.held {
		_ = unix.Close(fd)
	}
	w.held = nil
}
