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
	// Done, when following, is closed when the container has ended: Read then returns at the end of the file.
	Done <-chan struct{}
}

// Read prints the CRI log at path to the writers: the content of the lines, long ones joined again, what was rotated
// away included. Following, it goes on to the new file after a rotation, and returns nil when ctx ends.
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

// logReader reads the lines of a log: of its files one after the other, and of those that follow.
type logReader struct {
	path string
	// parts are the files to read, the present one first.
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
		// Before the first read, so that nothing written after it goes unnoticed. The directory, because a
		// rotation makes a new file in it.
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

// skip leaves out all but the last n lines; n below 0 means none.
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

// copy prints everything up to the end of the file, then, when following, all that comes.
func (l *logReader) copy(ctx context.Context, p *printer) error {
	for {
		// Asked before reading: what was written until the container ended is then read for certain.
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
			// The writer has left the old file; what it wrote there last may have come after drain.
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

// drain prints all whole lines up to the end of the present file.
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

// line returns the next whole line, or io.EOF; the beginning of one is kept for later.
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

// fill reads more into buf, which grows only for a line longer than it.
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

// advance turns to the next file.
func (l *logReader) advance() {
	l.parts[0].f.Close()
	l.parts = l.parts[1:]
	l.buf, l.pos = l.buf[:0], 0
}

// rotated says, when following, whether there is another file to read after the present one: another one has taken the
// name, or it was cut short.
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

// next opens what comes after the present file: there may have been several rotations since it was opened.
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

// wait blocks until something happened in the directory, the container ended, or ctx did.
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
