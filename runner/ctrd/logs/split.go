package logs

import "bytes"

const (
	// maxLine is the longest content of one line in a log file, that of containerd's CRI. Longer lines are
	// written as P (partial) pieces followed by an F (full) one.
	maxLine = 16 << 10
	// stampFormat is RFC 3339 with all nine digits, so that lines of one file sort by time.
	stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

	tagPartial = 'P'
	tagFull    = 'F'
)

// splitter turns the bytes of one stream into lines of the CRI log format:
//
//	<time> <stdout|stderr> <P|F> <content>
//
// It is pure; the caller gives it the time and the room to write into.
type splitter struct {
	stream string
	// pending is the beginning of a line whose end has not been seen; at most maxLine bytes, plus one
	// carriage return that may turn out to be part of the line's end.
	pending []byte
}

// add appends the lines that data completes to dst and keeps the rest.
func (s *splitter) add(dst, stamp, data []byte) []byte {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return s.keep(dst, stamp, data)
		}
		line := data[:i]
		if len(s.pending) > 0 {
			s.pending = append(s.pending, line...)
			line = s.pending
		}
		dst = s.full(dst, stamp, trimCR(line))
		s.clear()
		data = data[i+1:]
	}
}

// trimCR removes a carriage return from the end; bytes.TrimSuffix takes a third of the time of a short line.
func trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// full appends one whole line.
func (s *splitter) full(dst, stamp, line []byte) []byte {
	for len(line) > maxLine {
		dst = s.put(dst, stamp, tagPartial, line[:maxLine])
		line = line[maxLine:]
	}
	return s.put(dst, stamp, tagFull, line)
}

// keep holds back the beginning of a line, and appends those pieces of it that are certain.
func (s *splitter) keep(dst, stamp, data []byte) []byte {
	if len(s.pending) > 0 {
		s.pending = append(s.pending, data...)
		data = s.pending
	}
	for len(data) > maxLine && (len(data) > maxLine+1 || data[maxLine] != '\r') {
		dst = s.put(dst, stamp, tagPartial, data[:maxLine])
		data = data[maxLine:]
	}
	s.pending = append(s.pending[:0], data...)
	return dst
}

// flush appends what is pending as a P piece. A carriage return at its end stays: a newline may follow it.
func (s *splitter) flush(dst, stamp []byte) []byte {
	piece := trimCR(s.pending)
	if len(piece) == 0 {
		return dst
	}
	dst = s.put(dst, stamp, tagPartial, piece)
	s.pending = append(s.pending[:0], s.pending[len(piece):]...)
	return dst
}

// end appends all that is pending, tagged P as it has no newline.
func (s *splitter) end(dst, stamp []byte) []byte {
	if len(s.pending) > 0 {
		dst = s.put(dst, stamp, tagPartial, s.pending)
	}
	s.pending = nil
	return dst
}

// clear forgets what was pending, and the memory too when it was much.
func (s *splitter) clear() {
	if cap(s.pending) > 512 {
		s.pending = nil
	}
	s.pending = s.pending[:0]
}

func (s *splitter) put(dst, stamp []byte, tag byte, content []byte) []byte {
	dst = append(dst, stamp...)
	dst = append(dst, ' ')
	dst = append(dst, s.stream...)
	dst = append(dst, ' ', tag, ' ')
	dst = append(dst, content...)
	return append(dst, '\n')
}
