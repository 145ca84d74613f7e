package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// spoolSlack is how much of a spool may be in the log already before the rest is moved to the beginning: more than the longest rest, so
	// that the copy never overlaps its source.
	spoolSlack = 32 << 10
	// spoolIdle is the same limit for an idle spool.
	spoolIdle = 4 << 10
)

// spool is a file that holds the output of one stream from the FIFO until it is in the log file:
//
//	0               start            fed              end
//	|  in the log   | incomplete     | not yet split  |
//
// start and end are in the journal. Output comes from the FIFO by splice, and end is the offset argument of that call: the kernel moves
// data from the pipe to the file and stores the new offset before a signal can end the process. (The exception is a journal that the kernel
// swaps out, or writes back to a disk, in the microseconds of the kill; a tmpfs is never written back.) The next process writes what it
// finds between start and end.
//
// While idle, the file has at most a page, or an incomplete line; without any output there is no file.
type spool struct {
	path    string
	journal *journal
	stream  int
	f       *os.File // nil: no output so far
	fed     int64
	// size is the size of the file.
	size int64
}

func (s *spool) progress() *progress { return &s.journal.streams[s.stream] }
func (s *spool) start() int64        { return int64(s.progress().start.Load()) }
func (s *spool) end() int64          { return int64(s.progress().end.Load()) }

// recover opens the spool of an earlier process, if it exists.
func (s *spool) recover() error {
	p := s.progress()
	f, err := os.OpenFile(s.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		p.move(0)
		return nil
	}
	if err != nil {
		return err
	}
	s.f = f
	st, err := f.Stat()
	if err != nil {
		return err
	}
	s.size = st.Size()
	if n := int64(p.moved.Load()); n > 0 {
		p.move(n)
	}
	if s.end() <= s.start() || s.end() > s.size {
		p.move(0)
	}
	s.fed = s.start()
	return nil
}

// take moves available data from the FIFO to the spool and reads it into buf, up to its size. It returns EAGAIN if the FIFO is empty.
func (s *spool) take(fifo int, buf []byte) (int, error) {
	if s.f == nil {
		if n, err := unix.IoctlGetInt(fifo, unix.TIOCINQ); err == nil && n == 0 {
			return 0, unix.EAGAIN
		}
		f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return 0, err
		}
		s.f = f
	}
	n, err := uninterrupted(func() (int, error) {
		// This store maps the page for writing. Otherwise splice may have to do that, which can fail on a disk while the process is being
		// killed: then the output has left the FIFO, but the offset is not stored.
		p := &s.progress().end
		p.Store(p.Load())
		end := (*int64)(unsafe.Pointer(p))
		n, err := unix.Splice(fifo, nil, int(s.f.Fd()), end, len(buf), unix.SPLICE_F_NONBLOCK)
		return int(n), err
	})
	if errors.Is(err, unix.EAGAIN) {
		_ = s.cut() // what stays is only memory
	}
	if err != nil || n == 0 {
		return 0, err
	}
	s.size = max(s.size, s.end())
	return s.next(buf)
}

// cut truncates the file after the needed part.
func (s *spool) cut() error {
	if s.f == nil || s.size == s.end() {
		return nil
	}
	s.size = s.end()
	return s.f.Truncate(s.size)
}

// next reads data that was not split yet, up to the size of buf.
func (s *spool) next(buf []byte) (int, error) {
	n := int(min(s.end()-s.fed, int64(len(buf))))
	if _, err := s.f.ReadAt(buf[:n], s.fed); err != nil {
		return 0, fmt.Errorf("read back: %w", err)
	}
	return n, nil
}

// left reports whether there is data to split.
func (s *spool) left() bool { return s.fed < s.end() }

// shrink drops what is in the log once that is more than slack. rest is the remaining data, from start on.
func (s *spool) shrink(rest []byte, slack int64) error {
	n := int64(len(rest))
	if s.left() || n > 0 && s.start() < max(n, slack) {
		return nil
	}
	return s.hold(rest)
}

// hold replaces the content by rest. Its new place must not overlap the old one.
func (s *spool) hold(rest []byte) error {
	n := int64(len(rest))
	if n > 0 {
		if s.f == nil {
			return fs.ErrNotExist
		}
		s.size = max(s.size, n)
		if _, err := s.f.WriteAt(rest, 0); err != nil {
			return err
		}
	}
	s.progress().move(n)
	s.fed = n
	return nil
}

// drop discards the content of the spool, because the caller has it in memory.
func (s *spool) drop() error {
	return errors.Join(s.hold(nil), s.cut())
}

func (s *spool) close() {
	if s.f != nil {
		_ = s.cut() // what stays is only memory
		s.f.Close()
	}
}

// uninterrupted repeats a system call after EINTR.
func uninterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
