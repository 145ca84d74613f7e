package logs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// warnEvery is the shortest time between two warnings about one file.
const warnEvery = time.Minute

// logFile is the CRI log file of one container. Both its streams write into it, whole lines at a time.
//
// Nothing that happens to the file may stop a reader: what cannot be written is dropped and counted, and
// every later batch tries again with a newly opened file.
type logFile struct {
	path string
	log  *slog.Logger

	mu sync.Mutex // guards all below
	f  *os.File
	// warnedAt is when a failure was last told, warned that its end has not been told yet. On a disk that is
	// nearly full, writes fail and work in turn: that is told once a minute.
	warnedAt time.Time
	warned   bool
	// dropped counts the lines lost since the last report of an end, lost those of all failures.
	dropped, lost uint64
	closed        bool
}

// write appends b, which holds whole lines only. m is where they come from.
func (l *logFile) write(b []byte, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.appendLocked(b, m)
	m.done()
	if err != nil {
		l.failLocked(err, bytes.Count(b[n:], []byte{'\n'}))
		return
	}
	if l.warned {
		l.log.Info("log file is writable again", "path", l.path, "droppedLines", l.dropped)
		l.warned, l.dropped = false, 0
	}
}

// appendLocked appends b and returns how much of it is in the file: all, or up to the end of a line.
func (l *logFile) appendLocked(b []byte, m mark) (int, error) {
	if l.closed {
		return 0, os.ErrClosed
	}
	st, err := l.openLocked()
	if err != nil {
		return 0, err
	}
	m.begin(&st, len(b))
	n, err := l.f.Write(b)
	if err == nil {
		return n, nil
	}
	// The disk may have taken part of a line: cut it off, or the next line would be glued to it.
	whole := bytes.LastIndexByte(b[:n], '\n') + 1
	if whole < n {
		err = errors.Join(err, l.f.Truncate(st.Size+int64(whole)))
	}
	return whole, err
}

func (l *logFile) failLocked(err error, lines int) {
	l.dropped += uint64(lines)
	l.lost += uint64(lines)
	if !l.warned && time.Since(l.warnedAt) > warnEvery {
		l.log.Warn("cannot write log file, output is dropped until it works again", "path", l.path, "error", err)
		l.warned, l.warnedAt = true, time.Now()
	}
	l.closeLocked()
}

// openLocked makes sure that f is an open file which still has a name, and returns what it is now.
func (l *logFile) openLocked() (st unix.Stat_t, err error) {
	if l.f != nil {
		if err := unix.Fstat(int(l.f.Fd()), &st); err == nil && st.Nlink > 0 {
			return st, nil
		}
		l.closeLocked()
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return st, err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return st, err
	}
	if err := errors.Join(cutTornLine(f), unix.Fstat(int(f.Fd()), &st)); err != nil {
		f.Close()
		return st, err
	}
	l.f = f
	return st, nil
}

// cutTornLine removes the beginning of a line from the end of the file. A power cut leaves such a thing, and so
// does a process that is killed in the middle of a write without journal; the next line would be glued to it. A
// tail that is longer than any line of ours is left alone.
func cutTornLine(f *os.File) error {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return err
	}
	tail := make([]byte, min(st.Size(), 2*maxLine))
	start := st.Size() - int64(len(tail))
	if _, err := f.ReadAt(tail, start); err != nil {
		return err
	}
	end := start + int64(bytes.LastIndexByte(tail, '\n')) + 1
	if end == st.Size() || (end == start && start > 0) {
		return nil
	}
	return f.Truncate(end)
}

// reopen closes the file and opens what has its name now, for rotation. No line is lost or split.
func (l *logFile) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	l.closeLocked()
	if _, err := l.openLocked(); err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
	l.closed = true
}

func (l *logFile) closeLocked() {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
}

func (l *logFile) lostLines() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}
