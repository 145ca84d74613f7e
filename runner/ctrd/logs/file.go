package logs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// warnEvery is the shortest time between two warnings about one file.
const warnEvery = time.Minute

// logFile is the CRI log file of one container. Both its streams write into it, whole lines at a time. When it is
// full it gets another name, and the next line is the first of a new file; see keeper for what becomes of the old one.
//
// Nothing that happens to the file may stop a reader: what cannot be written is dropped and counted, and
// every later batch tries again with a newly opened file. The first one that can be written begins with a line that
// tells how many are missing.
type logFile struct {
	path   string
	id     string
	log    *slog.Logger
	keeper *keeper

	mu sync.Mutex // guards all below
	f  *os.File
	// warnedAt is when a failure was last told, warned that its end has not been told yet. On a disk that is
	// nearly full, writes fail and work in turn: that is told once a minute.
	warnedAt time.Time
	warned   bool
	// dropped counts the lines lost since the last report of an end, lost those of all failures, untold those that the
	// file itself does not tell of, for the last of which cause is the reason.
	dropped, lost, untold uint64
	cause                 error
	// stuck reports whether the file cannot be renamed, and that this was told.
	stuck, closed bool
}

// write appends b, which holds whole lines only. m is where they come from.
func (l *logFile) write(b []byte, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, told := l.tellLocked(b)
	n, err := l.appendLocked(b, told, m)
	if err != nil {
		l.failLocked(err, bytes.Count(b[max(n, told):], []byte{'\n'}), n > told, m)
		return
	}
	m.done()
	l.untold = 0
	if l.warned {
		l.log.Info("log file is writable again", "path", l.path, "droppedLines", l.dropped)
		l.keeper.notice(Notice{Kind: Resumed, Container: l.id, Path: l.path, Lines: l.dropped})
		l.warned, l.dropped = false, 0
	}
}

// tellLocked puts a line about those that were dropped before b, and returns how long that is.
func (l *logFile) tellLocked(b []byte) (all []byte, told int) {
	if l.untold == 0 {
		return b, 0
	}
	cause := "the log file could not be written"
	if l.cause != nil {
		cause = l.cause.Error()
	}
	line := fmt.Appendf(nil, "%s %s %c monopod: %d lines of output are missing here: %s\n",
		l.keeper.now().UTC().Format(stampFormat), stderrName, tagFull, l.untold, strings.ReplaceAll(cause, "\n", "; "))
	return append(line, b...), len(line)
}

// appendLocked appends b and returns how much of it is in the file: all, or up to the end of a line. Its first bytes,
// which tell of dropped lines, are not alone in it.
func (l *logFile) appendLocked(b []byte, told int, m mark) (int, error) {
	if l.closed {
		return 0, os.ErrClosed
	}
	st, err := l.openLocked()
	if err != nil {
		return 0, err
	}
	if l.keeper.limits.over(st.Size, len(b)) {
		if st, err = l.rotateLocked(st); err != nil {
			return 0, err
		}
	}
	m.begin(&st, len(b))
	n, err := l.f.Write(b)
	if err == nil {
		l.keeper.grew(n)
		return n, nil
	}
	// The disk may have taken part of a line: cut it off, or the next line would be glued to it.
	whole := bytes.LastIndexByte(b[:n], '\n') + 1
	if whole <= told {
		whole = 0
	}
	if whole < n {
		err = errors.Join(err, l.f.Truncate(st.Size+int64(whole)))
	}
	l.keeper.grew(whole)
	return whole, err
}

// rotateLocked makes room: it returns what the file is then. A file that cannot be renamed grows.
func (l *logFile) rotateLocked(st unix.Stat_t) (unix.Stat_t, error) {
	if err := l.keeper.rotate(l.path); err != nil {
		if !l.stuck {
			l.log.Warn("cannot rotate log file, it grows beyond its limit", "path", l.path, "error", err)
		}
		l.stuck = true
		return st, nil
	}
	l.stuck = false
	l.closeLocked()
	return l.openLocked()
}

// failLocked drops lines. told says that the file tells of those that were dropped before.
func (l *logFile) failLocked(err error, lines int, told bool, m mark) {
	if told {
		l.untold = 0
	}
	l.untold += uint64(lines)
	m.drop(l.untold)
	l.dropped += uint64(lines)
	l.lost += uint64(lines)
	l.cause = err
	if !l.warned && time.Since(l.warnedAt) > warnEvery {
		l.log.Warn("cannot write log file, output is dropped until it works again", "path", l.path, "error", err)
		l.keeper.notice(Notice{Kind: Dropping, Container: l.id, Path: l.path, Err: err})
		l.warned, l.warnedAt = true, time.Now()
	}
	l.closeLocked()
}

// lose counts lines that never came here.
func (l *logFile) lose(lines int, why error, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(why, lines, false, m)
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

// reopen closes the file and opens what has its name now, after somebody else rotated it. No line is lost or split.
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

// close closes the file, which no line comes to any more, and reports whether it tells of all that were dropped.
func (l *logFile) close() (told bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line, n := l.tellLocked(nil); n > 0 {
		if _, err := l.appendLocked(line, 0, mark{}); err == nil {
			l.untold = 0
		}
	}
	l.closeLocked()
	l.closed = true
	return l.untold == 0
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
