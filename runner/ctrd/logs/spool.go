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
	// spoolSlack is how much of a spool may be in the log already before the rest is moved to its beginning:
	// more than the longest rest, which therefore never overlaps its new place.
	spoolSlack = 32 << 10
	// spoolIdle is the same for a spool that nothing is coming into for a while.
	spoolIdle = 4 << 10
)

// spool is a file that holds the output of one stream from the FIFO until it is in the log file:
//
//	0               start            fed              end
//	|  in the log   | a line begun   | not yet split  |
//
// The journal knows start and end. Output comes from the FIFO by splice, and end is that call's offset: the kernel
// takes from the pipe what it has added to the file and stores the new offset, all before a signal can end the
// process. (But for a journal that the kernel swaps out, or writes back to a disk, in the same microseconds as the
// kill; a tmpfs is never written back.) What the next process finds between start and end is what it has to write.
//
// While nothing comes the file has at most a page, or a line that has begun; without any output there is no file.
type spool struct {
	path    string
	journal *journal
	stream  int
	f       *os.File // nil: no output so far
	fed     int64
	// size is that of the file.
	size int64
}

func (s *spool) progress() *progress { return &s.journal.streams[s.stream] }
func (s *spool) start() int64        { return int64(s.progress().start.Load()) }
func (s *spool) end() int64          { return int64(s.progress().end.Load()) }

// recover opens what an earlier process has left, if any.
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

// take moves what is in the FIFO to the spool and reads it into buf, or as much as has room there. It returns
// EAGAIN when nothing is in the FIFO.
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
		// This store maps the page for writing. Without it splice may have to, and on a disk that can fail
		// when the process is being killed: then the output is gone from the FIFO and the offset not stored.
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

// cut ends the file after what counts.
func (s *spool) cut() error {
	if s.f == nil || s.size == s.end() {
		return nil
	}
	s.size = s.end()
	return s.f.Truncate(s.size)
}

// next reads what was not split yet, as much as has room in buf.
func (s *spool) next(buf []byte) (int, error) {
	n := int(min(s.end()-s.fed, int64(len(buf))))
	if _, err := s.f.ReadAt(buf[:n], s.fed); err != nil {
		return 0, fmt.Errorf("read back: %w", err)
	}
	return n, nil
}

// left reports whether there is anything to split.
func (s *spool) left() bool { return s.fed < s.end() }

// shrink drops what is in the log once that is more than slack. rest is what remains, the bytes from start on.
func (s *spool) shrink(rest []byte, slack int64) error {
	n := int64(len(rest))
	if s.left() || n > 0 && s.start() < max(n, slack) {
		return nil
	}
	return s.hold(rest)
}

// hold makes rest all that counts. Its place must not overlap what counted before.
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

// drop forgets all output in the spool, for the caller has it in memory.
func (s *spool) drop() error {
	return errors.Join(s.hold(nil), s.cut())
}

func (s *spool) close() {
	if s.f != nil {
		_ = s.cut() // what stays is only memory
		s.f.Close()
	}
}

// uninterrupted repeats a system call that a signal interrupts.
func uninterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
