package logs

import "bytes"

const (
	// maxLine is the maximum length of a line in a log file, as in containerd's CRI. Longer lines are written as P (partial) pieces
	// followed by an F (full) one.
	maxLine = 16 << 10
	// stampFormat is RFC 3339 with all nine digits, so that lines of one file sort by time.
	stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

	tagPartial = 'P'
	tagFull    = 'F'
)

// splitter converts the bytes of one stream into lines of the CRI log format:
//
//	<time> <stdout|stderr> <P|F> <content>
//
// It is pure: the caller passes the time and the buffer to write to.
type splitter struct {
	stream string
	// pending is an incomplete line of at most maxLine bytes, plus one carriage return that may belong to the end of the line.
	pending []byte
}

// add appends the lines completed by data to dst and keeps the rest.
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

// trimCR removes a trailing carriage return; bytes.TrimSuffix takes a third of the time of a short line.
func trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// full appends one complete line.
func (s *splitter) full(dst, stamp, line []byte) []byte {
	for len(line) > maxLine {
		dst = s.put(dst, stamp, tagPartial, line[:maxLine])
		line = line[maxLine:]
	}
	return s.put(dst, stamp, tagFull, line)
}

// keep stores an incomplete line, and appends its pieces that exceed maxLine.
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

// flush appends the pending line as a P piece. A trailing carriage return is kept: a newline may follow it.
func (s *splitter) flush(dst, stamp []byte) []byte {
	piece := trimCR(s.pending)
	if len(piece) == 0 {
		return dst
	}
	dst = s.put(dst, stamp, tagPartial, piece)
	s.pending = append(s.pending[:0], s.pending[len(piece):]...)
	return dst
}

// end appends everything pending, tagged P because it has no newline.
func (s *splitter) end(dst, stamp []byte) []byte {
	if len(s.pending) > 0 {
		dst = s.put(dst, stamp, tagPartial, s.pending)
	}
	s.pending = nil
	return dst
}

// clear discards the pending line, and frees its memory if it was large.
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
