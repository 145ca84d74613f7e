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
	// readSize is the capacity of a FIFO: one read takes all there is.
	readSize = 64 << 10
	// writeSize bounds the output kept in memory before it goes to the file.
	writeSize = 256 << 10
	// splitSize is how much is split at a time: a byte of input can become fifty.
	splitSize = 4 << 10
	// partialDelay is how long the beginning of a line may wait for its end before it is written as a P
	// piece. It makes prompts visible. Programs that write one line in several pieces are much faster than
	// this, so their lines stay in one piece.
	partialDelay = time.Second
)

// partSize and writeMost keep what is written at a time small beside the size that a log file may have.
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

// mode is what a reader has been told to do.
type mode = int32

const (
	// modeCopy: wait for data, for ever.
	modeCopy mode = iota
	// modeDrain: copy what is there, then end.
	modeDrain
	// modeStop: end now; what is in the FIFO waits for the next run.
	modeStop
)

// batch is the memory for one read and its write. Idle readers have none.
type batch struct {
	in  [readSize]byte
	out []byte
}

// batches hands out batches to the readers that have data.
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

// reader copies one FIFO into a log file. Its goroutine is run; only tell may be called from others.
//
// The FIFO is open for reading and writing, so that there is always a writer: a read never reports the end,
// neither before the shim has opened it nor after the shim died. The end is therefore never seen but said:
// tell(modeDrain), by the owner who knows that nobody can write any more.
type reader struct {
	fifo  *os.File
	raw   syscall.RawConn
	out   *logFile
	pool  *batches
	split splitter
	// spool is nil when the container has no journal: then output is in memory only until it is written.
	spool *spool
	log   *slog.Logger
	now   func() time.Time
	// give passes on what was read to those who look on; nil: there can be none.
	give func([]byte)
	// delay is partialDelay, stall is stallAfter, but for tests.
	delay, stall time.Duration
	// part is how many bytes are split at a time, most how much output is written at a time.
	part, most int

	mode atomic.Int32

	// Of the goroutine only: the result of the last read.
	batch *batch
	n     int
	err   error
	// loose reports whether the pending line is not in the spool, warned that this was told.
	loose, warned bool
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

// tell changes the mode and wakes the goroutine.
func (r *reader) tell(m mode) {
	r.mode.Store(m)
	// An error means that the reader has ended, which is what is wanted.
	_ = r.fifo.SetReadDeadline(time.Unix(1, 0))
}

// close releases what open opened.
func (r *reader) close() {
	r.fifo.Close()
	if r.spool != nil {
		r.spool.close()
	}
}

// run copies until it is told to end, what an earlier process has left in the spool first.
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
			r.log.Error("read container output", "fifo", r.fifo.Name(), "error", err)
			r.finish()
			return
		}
	}
}

// wait blocks until it has read something, or the deadline: that of a pending line, or a call of tell.
func (r *reader) wait() error {
	var deadline time.Time
	if len(trimCR(r.split.pending)) > 0 {
		deadline = time.Now().Add(r.delay)
	}
	if err := r.fifo.SetReadDeadline(deadline); err != nil {
		return err
	}
	// tell stores the mode before it sets its deadline. So either it is seen here, or its deadline comes
	// after the one just set and ends the read.
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

// tryRead reads once without blocking; false means that there was nothing.
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

// take takes out of the FIFO what is there, through the spool when that works.
func (r *reader) take(fd int, buf []byte) (int, error) {
	if r.spool != nil && !r.loose {
		n, err := r.spool.take(fd, buf)
		if err == nil || errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		r.bypass(err)
	}
	return uninterrupted(func() (int, error) { return unix.Read(fd, buf) })
}

// bypass leaves the spool out until tidy can bring it back.
func (r *reader) bypass(err error) {
	r.loose = true
	if err := errors.Join(err, r.spool.drop()); !r.warned {
		r.log.Warn("output is copied without its journal: a kill now can lose some", "fifo", r.fifo.Name(), "error", err)
		r.warned = true
	}
}

// resume writes the lines that are in the spool, and leaves a last line without end pending.
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

// process writes the lines of the batch that was read.
func (r *reader) process() {
	b := r.batch
	r.batch = nil
	stamp := r.stamp()
	data := b.in[:r.n]
	for len(data) > 0 {
		// Small slices bound the output.
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
	if r.give != nil {
		r.give(b.in[:r.n])
	}
	b.out = b.out[:0]
	r.pool.put(b)
	r.tidy(spoolSlack)
}

// spooled reports whether the output in memory is in the spool too.
func (r *reader) spooled() bool { return r.spool != nil && !r.loose }

// mark returns the mark for a write of all that is not pending.
func (r *reader) mark() mark {
	if !r.spooled() {
		return mark{}
	}
	return mark{spool: r.spool, upTo: r.spool.fed - int64(len(r.split.pending))}
}

// tidy removes from the spool what was written, but for slack bytes. After bypass it brings the spool back.
func (r *reader) tidy(slack int64) {
	switch {
	case r.spool == nil:
	case r.loose:
		r.loose = r.spool.hold(r.split.pending) != nil
	default:
		if err := r.spool.shrink(r.split.pending, slack); err != nil {
			r.bypass(err)
		}
	}
}

func (r *reader) stamp() []byte {
	return r.now().UTC().AppendFormat(make([]byte, 0, len(stampFormat)), stampFormat)
}

// flush writes what the splitter holds, by its method f.
func (r *reader) flush(f func(dst, stamp []byte) []byte) {
	if out := f(nil, r.stamp()); len(out) > 0 {
		r.write(out, r.mark())
	}
	r.tidy(spoolIdle)
}

// finish ends the copying: drained, or at once with the pending beginning of a line written as a P piece.
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
			continue // tell stores the mode first: its deadline may come only now
		}
		if empty || err != nil {
			break
		}
		r.process()
	}
	r.flush(r.split.end)
}
