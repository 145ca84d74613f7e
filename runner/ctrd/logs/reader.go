package logs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readSize is the capacity of a FIFO: one read empties it.
	readSize = 64 << 10
	// writeSize is the maximum output in memory before it is written to the file.
	writeSize = 256 << 10
	// splitSize is the maximum input split at a time, because one byte can become fifty.
	splitSize = 4 << 10
	// partialDelay is how long an incomplete line waits for its end before it is written as a P piece, so that prompts become visible.
	// Programs that write one line in several pieces are much faster, so their lines stay in one piece.
	partialDelay = time.Second
)

// partSize and writeMost keep each write small compared with the maximum size of a log file.
func partSize(maxSize int64) int {
	if maxSize <= 0 {
		return splitSize
	}
	return int(min(max(maxSize/512, 64), splitSize))
}

func writeMost(maxSize int64) int {
	if maxSize <= 0 {
		return writeSize
	}
	return int(min(maxSize/8, writeSize))
}

// mode is the state requested from a reader.
type mode = int32

const (
	// modeCopy: wait for data without limit.
	modeCopy mode = iota
	// modeDrain: copy available data, then end.
	modeDrain
	// modeStop: end now; data in the FIFO waits for the next run.
	modeStop
)

// batch is the memory for one read and its write. Idle readers have none.
type batch struct {
	in  [readSize]byte
	out []byte
}

// batches provides batches to readers that have data.
type batches struct{ pool sync.Pool }

func (p *batches) get() *batch {
	if b, ok := p.pool.Get().(*batch); ok {
		return b
	}
	return &batch{}
}

func (p *batches) put(b *batch) {
	if cap(b.out) <= 2*writeSize {
		p.pool.Put(b)
	}
}

// reader copies one FIFO into a log file in its goroutine run. Other goroutines may only call setMode.
//
// The FIFO is open for reading and writing, so that it always has a writer: a read returns EOF neither before the shim has opened it nor
// after the shim died. The owner knows when no process can write any longer, and then ends the reader with setMode(modeDrain).
type reader struct {
	fifo  *os.File
	raw   syscall.RawConn
	out   *logFile
	pool  *batches
	split splitter
	// spool is nil if the container has no journal: then output is only in memory until it is written.
	spool *spool
	log   *slog.Logger
	now   func() time.Time
	// publish passes output to taps; nil if there can be none.
	publish func([]byte)
	// delay is partialDelay and stall is stallAfter, except in tests.
	delay, stall time.Duration
	// part is the maximum number of bytes split at a time, most the maximum output written at a time.
	part, most int

	mode atomic.Int32

	// Used by the goroutine only: the result of the last read.
	batch *batch
	n     int
	err   error
	// unspooled means that the pending line is not in the spool, warned that this was logged.
	unspooled, warned bool
}

// open opens the FIFO for r, and the spool.
func (r *reader) open(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return fmt.Errorf("fifo %s: %w", path, err)
	}
	r.fifo, r.raw = f, raw
	if r.spool != nil {
		if err := r.spool.recover(); err != nil {
			r.bypass(err)
		}
	}
	return nil
}

// setMode changes the mode and wakes the goroutine.
func (r *reader) setMode(m mode) {
	r.mode.Store(m)
	// An error means that the reader has ended, which is the goal.
	_ = r.fifo.SetReadDeadline(time.Unix(1, 0))
}

// close releases what open opened.
func (r *reader) close() {
	r.fifo.Close()
	if r.spool != nil {
		r.spool.close()
	}
}

// run copies until its mode ends it, starting with output that an earlier process left in the spool.
func (r *reader) run() {
	defer r.close()
	r.resume()
	for {
		err := r.wait()
		switch {
		case err == nil:
			r.process()
		case errors.Is(err, os.ErrDeadlineExceeded) && r.mode.Load() == modeCopy:
			r.flush(r.split.flush)
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.finish()
			return
		default:
			r.log.Error("read container output", "fifo", r.fifo.Name(), "err", err)
			r.finish()
			return
		}
	}
}

// wait blocks until it has read something or the deadline has passed: that of a pending line, or one set by setMode.
func (r *reader) wait() error {
	var deadline time.Time
	if len(trimCR(r.split.pending)) > 0 {
		deadline = time.Now().Add(r.delay)
	}
	if err := r.fifo.SetReadDeadline(deadline); err != nil {
		return err
	}
	// setMode stores the mode before it sets the deadline. So either the mode is seen here, or the deadline set by setMode replaces this
	// one and ends the read.
	if r.mode.Load() != modeCopy {
		return os.ErrDeadlineExceeded
	}
	return r.read(r.tryRead)
}

func (r *reader) read(attempt func(uintptr) bool) error {
	r.err = nil
	if err := r.raw.Read(attempt); err != nil {
		return err
	}
	return r.err
}

// tryRead reads once without blocking; false means that there was no data.
func (r *reader) tryRead(fd uintptr) bool {
	b := r.pool.get()
	n, err := r.take(int(fd), b.in[:])
	if n > 0 {
		r.batch, r.n = b, n
		return true
	}
	r.pool.put(b)
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	r.err = err
	if err == nil {
		r.err = errors.New("end of a fifo that is open for writing")
	}
	return true
}

// take reads the available data from the FIFO, through the spool if possible.
func (r *reader) take(fd int, buf []byte) (int, error) {
	if r.spool != nil && !r.unspooled {
		n, err := r.spool.take(fd, buf)
		if err == nil || errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		r.bypass(err)
	}
	return uninterrupted(func() (int, error) { return unix.Read(fd, buf) })
}

// bypass stops using the spool until tidy can enable it again.
func (r *reader) bypass(err error) {
	r.unspooled = true
	if err := errors.Join(err, r.spool.drop()); !r.warned {
		r.log.Warn("output is copied without its journal: a kill now can lose some", "fifo", r.fifo.Name(), "err", err)
		r.warned = true
	}
}

// resume writes the lines in the spool; an incomplete last line stays pending.
func (r *reader) resume() {
	for r.spool != nil && r.spool.left() {
		b := r.pool.get()
		n, err := r.spool.next(b.in[:])
		if err != nil {
			r.pool.put(b)
			r.bypass(err)
			return
		}
		r.batch, r.n = b, n
		r.process()
	}
}

// process writes the lines of the batch.
func (r *reader) process() {
	b := r.batch
	r.batch = nil
	stamp := r.stamp()
	data := b.in[:r.n]
	for len(data) > 0 {
		// Small slices limit the output.
		part := data[:min(len(data), r.part)]
		data = data[len(part):]
		b.out = r.split.add(b.out, stamp, part)
		if r.spooled() {
			r.spool.fed += int64(len(part))
		}
		if len(b.out) >= r.most {
			r.write(b.out, r.mark())
			b.out = b.out[:0]
		}
	}
	if len(b.out) > 0 {
		r.write(b.out, r.mark())
	}
	if r.publish != nil {
		r.publish(b.in[:r.n])
	}
	b.out = b.out[:0]
	r.pool.put(b)
	r.tidy(spoolSlack)
}

// spooled reports whether the output in memory is in the spool, too.
func (r *reader) spooled() bool { return r.spool != nil && !r.unspooled }

// mark returns the mark for a write of everything that is not pending.
func (r *reader) mark() mark {
	if !r.spooled() {
		return mark{}
	}
	return mark{spool: r.spool, upTo: r.spool.fed - int64(len(r.split.pending))}
}

// tidy removes written output from the spool, except up to slack bytes. After bypass, it enables the spool again.
func (r *reader) tidy(slack int64) {
	switch {
	case r.spool == nil:
	case r.unspooled:
		r.unspooled = r.spool.hold(r.split.pending) != nil
	default:
		if err := r.spool.shrink(r.split.pending, slack); err != nil {
			r.bypass(err)
		}
	}
}

func (r *reader) stamp() []byte {
	return r.now().UTC().AppendFormat(make([]byte, 0, len(stampFormat)), stampFormat)
}

// flush writes pending output of the splitter, using its method f.
func (r *reader) flush(f func(dst, stamp []byte) []byte) {
	if out := f(nil, r.stamp()); len(out) > 0 {
		r.write(out, r.mark())
	}
	r.tidy(spoolIdle)
}

// finish ends the copying: after draining, or immediately with an incomplete line written as a P piece.
func (r *reader) finish() {
	if r.mode.Load() == modeStop {
		r.flush(r.split.flush)
		return
	}
	for r.mode.Load() == modeDrain {
		_ = r.fifo.SetReadDeadline(time.Time{})
		empty := false
		err := r.read(func(fd uintptr) bool {
			empty = !r.tryRead(fd)
			return true
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // setMode stores the mode first: its deadline may follow only now
		}
		if empty || err != nil {
			break
		}
		r.process()
	}
	r.flush(r.split.end)
}
