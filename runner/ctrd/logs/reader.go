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
	// partialDelay is how long the beginning of a line may wait for its end before it is written as a P
	// piece. It makes prompts visible, and bounds what a kill -9 can lose of a line. Programs that write
	// one line in several pieces are much faster than this, so their lines stay in one piece.
	partialDelay = time.Second
)

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
	log   *slog.Logger
	now   func() time.Time

	mode atomic.Int32

	// Of the goroutine only: the result of the last read.
	batch *batch
	n     int
	err   error
}

// open opens the FIFO for r.
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
	return nil
}

// tell changes the mode and wakes the goroutine.
func (r *reader) tell(m mode) {
	r.mode.Store(m)
	// An error means that the reader has ended, which is what is wanted.
	_ = r.fifo.SetReadDeadline(time.Unix(1, 0))
}

// run copies until it is told to end.
func (r *reader) run() {
	defer r.fifo.Close()
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
	if len(r.split.pending) > 0 {
		deadline = time.Now().Add(partialDelay)
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
	n, err := unix.Read(int(fd), b.in[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(int(fd), b.in[:])
	}
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

// process writes the lines of the batch that was read.
func (r *reader) process() {
	b := r.batch
	r.batch = nil
	stamp := r.stamp()
	data := b.in[:r.n]
	for len(data) > 0 {
		// Small slices bound the output: a byte of input can become fifty.
		part := data[:min(len(data), 4<<10)]
		data = data[len(part):]
		b.out = r.split.add(b.out, stamp, part)
		if len(b.out) >= writeSize {
			r.out.write(b.out)
			b.out = b.out[:0]
		}
	}
	if len(b.out) > 0 {
		r.out.write(b.out)
	}
	b.out = b.out[:0]
	r.pool.put(b)
}

func (r *reader) stamp() []byte {
	return r.now().UTC().AppendFormat(make([]byte, 0, len(stampFormat)), stampFormat)
}

// flush writes what the splitter holds, by its method f.
func (r *reader) flush(f func(dst, stamp []byte) []byte) {
	if out := f(nil, r.stamp()); len(out) > 0 {
		r.out.write(out)
	}
}

// finish ends the copying: drained, or at once with the pending beginning of a line written as a P piece.
func (r *reader) finish() {
	if r.mode.Load() == modeStop {
		r.flush(r.split.flush)
		return
	}
	_ = r.fifo.SetReadDeadline(time.Time{})
	for r.mode.Load() == modeDrain {
		empty := false
		err := r.read(func(fd uintptr) bool {
			empty = !r.tryRead(fd)
			return true
		})
		if empty || err != nil {
			break
		}
		r.process()
	}
	r.flush(r.split.end)
}
