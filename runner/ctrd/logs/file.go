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

// warnEvery is the minimum interval between two warnings about one file.
const warnEvery = time.Minute

// logFile is the CRI log file of one container. Both streams write to it, whole lines at a time. A full file is renamed, and the next line
// starts a new one; see keeper for the rotated files.
//
// No failure of the file may stop a reader: output that cannot be written is dropped and counted, and each later batch tries again with a
// newly opened file. The first batch that can be written begins with a line that reports how many are missing.
type logFile struct {
	path   string
	id     string
	log    *slog.Logger
	keeper *keeper

	mu sync.Mutex // guards all below
	f  *os.File
	// warnedAt is the time of the last warning about a failure, and warned means that the recovery has not been reported yet. On a nearly
	// full disk, writes fail and succeed in turn, so these are reported at most once a minute.
	warnedAt time.Time
	warned   bool
	// dropped counts the lines lost since the last reported recovery, lost those of all failures, unreported those that the file itself
	// does not report as missing yet; cause is the reason of the last of these.
	dropped, lost, unreported uint64
	cause                     error
	// stuck means that the file cannot be renamed, and that this was logged.
	stuck, closed bool
}

// write appends b, which contains only whole lines. m is their position in the spool.
func (l *logFile) write(b []byte, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, reported := l.reportLocked(b)
	n, err := l.appendLocked(b, reported, m)
	if err != nil {
		l.failLocked(err, bytes.Count(b[max(n, reported):], []byte{'\n'}), n > reported, m)
		return
	}
	m.done()
	l.unreported = 0
	if l.warned {
		l.log.Info("log file is writable again", "path", l.path, "droppedLines", l.dropped)
		l.keeper.notice(Notice{Kind: Resumed, Container: l.id, Path: l.path, Lines: l.dropped})
		l.warned, l.dropped = false, 0
	}
}

// reportLocked prepends a line about dropped ones to b, and returns its length.
func (l *logFile) reportLocked(b []byte) (all []byte, reported int) {
	if l.unreported == 0 {
		return b, 0
	}
	cause := "the log file could not be written"
	if l.cause != nil {
		cause = l.cause.Error()
	}
	line := fmt.Appendf(nil, "%s %s %c monopod: %d lines of output are missing here: %s\n",
		l.keeper.now().UTC().Format(stampFormat), stderrName, tagFull, l.unreported, strings.ReplaceAll(cause, "\n", "; "))
	return append(line, b...), len(line)
}

// appendLocked appends b and returns how much of it was written: all, or up to the end of a line. The first bytes, which report dropped
// lines, are not written without a line that follows.
func (l *logFile) appendLocked(b []byte, reported int, m mark) (int, error) {
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
	// The disk may have accepted part of a line. Remove it, or the next line would continue it.
	whole := bytes.LastIndexByte(b[:n], '\n') + 1
	if whole <= reported {
		whole = 0
	}
	if whole < n {
		err = errors.Join(err, l.f.Truncate(st.Size+int64(whole)))
	}
	l.keeper.grew(whole)
	return whole, err
}

// rotateLocked rotates the file and returns the state of the new one. A file that cannot be renamed keeps growing.
func (l *logFile) rotateLocked(st unix.Stat_t) (unix.Stat_t, error) {
	if err := l.keeper.rotate(l.path); err != nil {
		if !l.stuck {
			l.log.Warn("cannot rotate log file, it grows beyond its limit", "path", l.path, "err", err)
		}
		l.stuck = true
		return st, nil
	}
	l.stuck = false
	l.closeLocked()
	return l.openLocked()
}

// failLocked drops lines. reported means that the file now contains the report of those dropped before.
func (l *logFile) failLocked(err error, lines int, reported bool, m mark) {
	if reported {
		l.unreported = 0
	}
	l.unreported += uint64(lines)
	m.drop(l.unreported)
	l.dropped += uint64(lines)
	l.lost += uint64(lines)
	l.cause = err
	if !l.warned && time.Since(l.warnedAt) > warnEvery {
		l.log.Warn("cannot write log file, output is dropped until it works again", "path", l.path, "err", err)
		l.keeper.notice(Notice{Kind: Dropping, Container: l.id, Path: l.path, Err: err})
		l.warned, l.warnedAt = true, time.Now()
	}
	l.closeLocked()
}

// lose counts lines that were dropped before they reached the file.
func (l *logFile) lose(lines int, why error, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(why, lines, false, m)
}

// openLocked ensures that f is open and that the file at path has not been removed or replaced. It returns its state.
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

// cutTornLine removes an incomplete line from the end of the file, or the next line would continue it. Such a line is left by a power cut,
// or by a kill during a write without journal. A tail longer than any line written by this package is kept.
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

// reopen opens the file at path again, after another program rotated it. No line is lost or split.
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

// close closes the file, and reports whether the file itself reports all dropped lines.
func (l *logFile) close() (reported bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line, n := l.reportLocked(nil); n > 0 {
		if _, err := l.appendLocked(line, 0, mark{}); err == nil {
			l.unreported = 0
		}
	}
	l.closeLocked()
	l.closed = true
	return l.unreported == 0
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
