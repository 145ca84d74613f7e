package logs

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A disk that hangs, unlike one that is full, does not answer at all: a blocked write cannot be cancelled. Until it returns, output stays
// in the FIFO, and is dropped when the FIFO is nearly full.

const (
	// stallAfter is how long a write to a log file may take before the disk counts as hung. Slow disks take seconds, too, and must not
	// cause loss of output.
	stallAfter = 10 * time.Second
	// reliefEvery is the interval of checks of the FIFO during a stall; from reliefFull bytes on, it is emptied.
	reliefEvery = 10 * time.Millisecond
	reliefFull  = readSize / 4
)

// errStalled is the reported reason for missing lines.
var errStalled = errors.New("the disk of the log file hung")

// write writes whole lines to the log file. If that takes too long, the container does not have to wait.
func (r *reader) write(out []byte, m mark) {
	over, lost := make(chan struct{}), make(chan int, 1)
	stalled := time.AfterFunc(r.stall, func() { lost <- r.relieve(over) })
	r.out.write(out, m)
	close(over)
	if stalled.Stop() {
		return
	}
	if n := <-lost; n > 0 {
		r.out.lose(n, errStalled, r.mark())
	}
}

// relieve keeps space in the FIFO until over is closed, and returns how many lines were dropped. The goroutine of the reader waits for it.
func (r *reader) relieve(over <-chan struct{}) (lost int) {
	buf := make([]byte, readSize)
	// If the whole process was paused, the deadline has passed at once, although the write is nearly done.
	tick := time.NewTicker(max(r.stall/10, reliefEvery))
	defer tick.Stop()
	for warned := false; ; tick.Reset(reliefEvery) {
		select {
		case <-over:
			return lost
		case <-tick.C:
		}
		lines, n := r.empty(buf)
		if n > 0 && !warned {
			warned = true
			r.log.Warn("a disk hangs, output is dropped until it works again", "path", r.out.path)
		}
		if lost += lines; n > 0 && lost == 0 {
			lost = 1 // a part of one
		}
	}
}

// empty drops the content of the FIFO if it is nearly full, and returns how many lines ended in it and its size in bytes.
func (r *reader) empty(buf []byte) (lines, size int) {
	_ = r.raw.Control(func(fd uintptr) { // an error: it is closed
		if waits, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil || waits < reliefFull {
			return
		}
		for {
			n, err := uninterrupted(func() (int, error) { return unix.Read(int(fd), buf) })
			if err != nil || n <= 0 {
				return
			}
			lines += bytes.Count(buf[:n], []byte{'\n'})
			if size += n; n < len(buf) {
				return
			}
		}
	})
	return lines, size
}
