package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// ReadOptions select what Read prints.
type ReadOptions struct {
	Follow     bool
	Tail       int // -1: all
	Since      time.Time
	Timestamps bool
	LimitBytes int64 // 0: no limit
	// Done is closed when the container has exited; a following Read then returns at the end of the file.
	Done <-chan struct{}
}

// Read prints the CRI log at path to the writers: the content of the lines, including rotated files, with long lines joined. When
// following, it continues with the new file after a rotation, and returns nil when ctx ends. A nil writer omits its stream.
func Read(ctx context.Context, path string, o ReadOptions, stdout, stderr io.Writer) error {
	l, err := openLog(path, o)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer l.close()
	p := newPrinter(o, stdout, stderr)
	err = l.copy(ctx, p)
	if err == nil || errors.Is(err, errLimit) {
		err = p.flush()
	}
	if err != nil {
		return fmt.Errorf("read log %s: %w", path, err)
	}
	return nil
}

// logReader reads the lines of a log: its files one after the other, and new ones after rotations.
type logReader struct {
	path string
	// parts are the files to read, starting with the present one.
	parts []*part
	// newest is the newest stamp of a rotated file when parts were opened.
	newest string
	// watch is nil unless following.
	watch *fsnotify.Watcher
	done  <-chan struct{}
	// buf[pos:] has been read from the present file but not returned.
	buf []byte
	pos int
}

func openLog(path string, o ReadOptions) (*logReader, error) {
	path, err := realPath(path)
	if err != nil {
		return nil, err
	}
	l := &logReader{path: path, done: o.Done}
	if o.Follow {
		// The watch starts before the first read, so that no later write is missed. It is on the directory, because a rotation creates a
		// new file.
		if l.watch, err = watchDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	if l.parts, l.newest, err = openParts(path, ""); err == nil {
		err = l.skip(o.Tail)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func watchDir(dir string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s (see fs.inotify.max_user_instances): %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, errors.Join(err, w.Close()))
	}
	return w, nil
}

// skip leaves out all but the last n lines; negative means all lines are printed.
func (l *logReader) skip(n int) error {
	if n < 0 {
		return nil
	}
	c := &tailCounter{want: n}
	for i, p := range slices.Backward(l.parts) {
		found, err := p.tail(c)
		if err != nil {
			return err
		}
		if found {
			closeParts(l.parts[:i])
			l.parts = l.parts[i:]
			return nil
		}
	}
	return nil
}

func (l *logReader) close() {
	if l.watch != nil {
		_ = l.watch.Close()
	}
	closeParts(l.parts)
}

// copy prints everything up to the end of the file and, when following, everything written later.
func (l *logReader) copy(ctx context.Context, p *printer) error {
	for {
		// Checked before reading, so that all output of a container that has exited is read.
		last := l.watch == nil || isClosed(l.done)
		if err := l.drain(ctx, p); err != nil {
			return err
		}
		if len(l.parts) > 1 {
			l.advance()
			continue
		}
		moved, err := l.rotated()
		if err != nil {
			return err
		}
		switch {
		case moved:
			// The writer has switched to a new file; its last writes to the old one may have come after drain.
			if err := l.drain(ctx, p); err != nil {
				return err
			}
			if err := l.next(); err != nil {
				return err
			}
		case last || ctx.Err() != nil:
			return nil
		default:
			if err := p.flush(); err != nil {
				return err
			}
			if err := l.wait(ctx); err != nil {
				return err
			}
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// drain prints all complete lines up to the end of the present file.
func (l *logReader) drain(ctx context.Context, p *printer) error {
	for ctx.Err() == nil {
		line, err := l.line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e, ok := parseEntry(line)
		if !ok {
			continue
		}
		if err := p.print(e); err != nil {
			return err
		}
	}
	return nil
}

// line returns the next complete line, or io.EOF; an incomplete line is kept for later.
func (l *logReader) line() ([]byte, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(l.buf[l.pos+scanned:], '\n'); i >= 0 {
			line := l.buf[l.pos : l.pos+scanned+i]
			l.pos += len(line) + 1
			return line, nil
		}
		scanned = len(l.buf) - l.pos
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more into buf, which grows only for lines longer than it.
func (l *logReader) fill() error {
	n := copy(l.buf, l.buf[l.pos:])
	l.buf, l.pos = l.buf[:n], 0
	if cap(l.buf)-n < blockSize/2 {
		l.buf = append(make([]byte, 0, 2*cap(l.buf)+blockSize), l.buf...)
	}
	m, err := l.parts[0].text.Read(l.buf[n:cap(l.buf)])
	l.buf = l.buf[:n+m]
	if m > 0 {
		return nil
	}
	return err
}

// advance switches to the next file.
func (l *logReader) advance() {
	l.parts[0].f.Close()
	l.parts = l.parts[1:]
	l.buf, l.pos = l.buf[:0], 0
}

// rotated reports, when following, whether another file must be read after the present one: path is a different file now, or the file was
// truncated.
func (l *logReader) rotated() (bool, error) {
	if l.watch == nil {
		return false, nil
	}
	present := l.parts[0]
	if present.stamp != "" { // there was none that is written to
		_, err := os.Stat(l.path)
		return err == nil, nil
	}
	old, err := present.f.Stat()
	if err != nil {
		return false, err
	}
	at, err := present.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, err
	}
	if old.Size() < at {
		return true, nil
	}
	now, err := os.Stat(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // between two steps of a rotation, or removed with its pod
	}
	return err == nil && !os.SameFile(old, now), err
}

// next opens the files after the present one: there may have been several rotations since it was opened.
func (l *logReader) next() error {
	present := l.parts[0]
	parts, newest, err := openParts(l.path, max(l.newest, present.stamp))
	if errors.Is(err, os.ErrNotExist) {
		return nil // gone again: rotated will see its successor
	}
	if err != nil {
		return err
	}
	if rotatedAway := parts[0].stamp != ""; rotatedAway && parts[0].same(present) {
		closeParts(parts[:1])
		parts = parts[1:]
	}
	if len(parts) == 0 {
		return nil // gone again
	}
	l.parts, l.newest = append([]*part{present}, parts...), newest
	l.advance()
	return nil
}

// wait blocks until the directory changes, the container exits, or ctx ends.
func (l *logReader) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-l.done:
	case <-l.watch.Events:
	case err := <-l.watch.Errors:
		if !errors.Is(err, fsnotify.ErrEventOverflow) {
			return fmt.Errorf("watch %s: %w", filepath.Dir(l.path), err)
		}
	}
	return nil
}
