package logs

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A disk that hangs, unlike one that is full, gives no answer at all: the write that waits for it cannot be taken back. Until it
// returns, what the container writes stays in the FIFO, and when that is nearly full it is dropped.

const (
	// stallAfter is how long a write to a log file may take before the disk counts as one that hangs. Disks that are only slow
	// take seconds, too, and cost no output.
	stallAfter = 10 * time.Second
	// reliefEvery is how often is looked at the FIFO then; from reliefFull bytes on it is emptied.
	reliefEvery = 10 * time.Millisecond
	reliefFull  = readSize / 4
)

// errStalled is why lines are missing then.
var errStalled = errors.New("the disk of the log file hung")

// write gives whole lines to the log file. While that takes too long, the container is not kept waiting.
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

// relieve keeps room in the FIFO until over is closed, and returns how many lines that has cost. The goroutine of the reader
// waits for it.
func (r *reader) relieve(over <-chan struct{}) (lost int) {
	buf := make([]byte, readSize)
	// After a rest of this whole process the time is over at once, and the write nearly done.
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

// empty drops what is in the FIFO if that is too much, and returns how many lines end in it and how many bytes it was.
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
