package logs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

// entry is one line of a CRI log file.
type entry struct {
	stamp   []byte
	stream  string
	partial bool
	content []byte
}

// parseEntry parses a line without its newline. It returns false for a line that is not in CRI format, for example after a power cut during
// a write.
func parseEntry(line []byte) (entry, bool) {
	stamp, rest, ok1 := bytes.Cut(line, []byte{' '})
	stream, rest, ok2 := bytes.Cut(rest, []byte{' '})
	tags, content, ok3 := bytes.Cut(rest, []byte{' '})
	if !ok1 || !ok2 || !ok3 {
		return entry{}, false
	}
	e := entry{stamp: stamp, content: content}
	switch string(stream) {
	case stdoutName:
		e.stream = stdoutName
	case stderrName:
		e.stream = stderrName
	default:
		return entry{}, false
	}
	first, _, _ := bytes.Cut(tags, []byte{':'})
	switch string(first) {
	case "P":
		e.partial = true
	case "F":
	default:
		return entry{}, false
	}
	return e, true
}

// errLimit stops the printing at LimitBytes; Read does not return it.
var errLimit = errors.New("byte limit reached")

// printer writes entries as the container wrote them, joining the pieces of long lines.
type printer struct {
	opts ReadOptions
	// out are the destinations by stream.
	out map[string]*outStream
	// last is the stream that was written last. It is flushed before another one is written, to keep the order if both have the same
	// destination.
	last *outStream
	// remain is the rest of LimitBytes; negative means no limit.
	remain int64
}

// outStream is the state of one stream.
type outStream struct {
	w *bufio.Writer
	// inLine means that the last entry was a partial one; skipped that the line it belongs to is not printed; off that no line is.
	inLine, skipped, off bool
}

func newPrinter(o ReadOptions, stdout, stderr io.Writer) *printer {
	p := &printer{opts: o, remain: -1, out: map[string]*outStream{
		stdoutName: {w: bufio.NewWriterSize(stdout, 32<<10), off: stdout == nil},
		stderrName: {w: bufio.NewWriterSize(stderr, 32<<10), off: stderr == nil},
	}}
	if o.LimitBytes > 0 {
		p.remain = o.LimitBytes
	}
	return p
}

func (p *printer) print(e entry) error {
	s := p.out[e.stream]
	first := !s.inLine
	s.inLine = e.partial
	if first {
		s.skipped = s.off || p.tooOld(e.stamp)
	}
	if s.skipped {
		return nil
	}
	if p.last != nil && p.last != s {
		if err := p.last.w.Flush(); err != nil {
			return err
		}
	}
	p.last = s
	if first && p.opts.Timestamps {
		if err := p.write(s, e.stamp, []byte{' '}); err != nil {
			return err
		}
	}
	if e.partial {
		return p.write(s, e.content)
	}
	return p.write(s, e.content, []byte{'\n'})
}

// tooOld reports whether an entry is older than requested. An unreadable time counts as new.
func (p *printer) tooOld(stamp []byte) bool {
	if p.opts.Since.IsZero() {
		return false
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	return err == nil && t.Before(p.opts.Since)
}

func (p *printer) write(s *outStream, parts ...[]byte) error {
	for _, b := range parts {
		cut := p.remain >= 0 && int64(len(b)) >= p.remain
		if cut {
			b = b[:p.remain]
		}
		if _, err := s.w.Write(b); err != nil {
			return err
		}
		if cut {
			return errLimit
		}
		if p.remain > 0 {
			p.remain -= int64(len(b))
		}
	}
	return nil
}

// flush writes all buffered output.
func (p *printer) flush() error {
	if p.last == nil {
		return nil
	}
	return p.last.w.Flush()
}
