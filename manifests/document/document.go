// Package document is the text of manifests: it splits an input into YAML and JSON documents, bounds their size, and finds the line and
// column of a field.
//
// It must not know what the fields mean.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// Document is one YAML document or JSON value of an input.
type Document struct {
	Data []byte
	// Line is the 1-based line of the input at which data starts.
	Line int
	JSON bool
}

// Split cuts an input into its documents, without those that hold nothing but white space,
// comments and markers. It follows YAML's rule that "---" and "..." at the start of a line always are
// markers, also inside quoted and block scalars, so it needs no parser. Of more than maxObjects it returns not all.
func Split(data []byte) []Document {
	var docs []Document
	s := splitter{data: data, line: 1}
	for s.pos < len(data) && len(docs) <= MaxObjects {
		s.next()
		if s.ended {
			docs = s.flush(docs)
		}
	}
	s.end = len(data)
	return s.flush(docs)
}

// splitter walks over the lines of an input.
type splitter struct {
	data []byte
	pos  int // start of the next line
	line int // its number
	// The current document.
	start, startLine int
	end              int
	content          bool // has something besides white space, comments, directives and markers
	marked           bool // has had its "---"
	// The document before the current line is complete.
	ended bool
}

// next looks at one line.
func (s *splitter) next() {
	if s.startLine == 0 {
		s.startLine = s.line
	}
	from := s.pos
	text := bytes.TrimPrefix(s.readLine(), []byte(byteOrderMark))
	rest, isStart := marker(text, "---")
	_, isEnd := marker(text, "...")
	s.ended = false
	switch {
	case isStart && (s.content || s.marked):
		s.ended, s.end = true, from
		s.pos, s.line = from, s.line-1 // look at this line again, as the first of its document
	case isStart:
		s.marked = true
		s.content = hasContent(rest)
	case isEnd:
		s.ended, s.end = true, from
	case !s.content:
		s.content = hasContent(text) && text[0] != '%'
	}
}

// flush ends the current document and starts the next one behind the line last read.
func (s *splitter) flush(docs []Document) []Document {
	if s.content {
		docs = append(docs, jsonDocuments(Document{Data: withoutMarks(s.data[s.start:s.end]), Line: s.startLine})...)
	}
	s.start, s.startLine = s.pos, 0
	s.content, s.marked, s.ended = false, false, false
	return docs
}

// byteOrderMark is what editors of Windows put at the start of a file, and cat of several files in between.
const byteOrderMark = "\ufeff"

// withoutMarks removes byte order marks from the lines before the content of a document, and from its first one: YAML allows them there, and
// its parser takes them for a part of the first key.
func withoutMarks(data []byte) []byte {
	if !bytes.Contains(data, []byte(byteOrderMark)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		n, size := lineEnd(data)
		line := bytes.TrimPrefix(data[:n], []byte(byteOrderMark))
		out = append(append(out, line...), data[n:n+size]...)
		data = data[n+size:]
		rest, isStart := marker(line, "---")
		if isStart {
			line = rest
		}
		if hasContent(line) && line[0] != '%' {
			break
		}
	}
	return append(out, data...)
}

// readLine returns the next line without its end and moves behind it.
func (s *splitter) readLine() []byte {
	rest := s.data[s.pos:]
	n, size := lineEnd(rest)
	s.pos += n + size
	s.line++
	return rest[:n]
}

// lineEnd finds the first line break of data and its length. Besides \n, \r\n and \r, YAML 1.1 breaks lines
// at NEL, LS and PS; a document marker after one of those must not be missed, or all behind it would be
// dropped without a word.
func lineEnd(data []byte) (at, size int) {
	// A look at all of data for each of its lines would take for ever where lines do not end in \n.
	for window := 1 << 10; window < len(data); window *= 4 {
		if at, size = firstBreak(data[:window]); size > 0 && at+utf8.UTFMax <= window {
			return at, size
		}
	}
	return firstBreak(data)
}

func firstBreak(data []byte) (at, size int) {
	line, _, found := bytes.Cut(data, []byte{'\n'})
	if found {
		size = 1
	}
	at = len(line)
	for i, b := range line {
		switch b {
		case '\r':
			if i == at-1 && size == 1 {
				return i, 2
			}
			return i, 1
		case 0xC2, 0xE2: // of all others, only these begin a character that breaks a line
			if r, n := utf8.DecodeRune(line[i:]); r == '\u0085' || r == '\u2028' || r == '\u2029' {
				return i, n
			}
		}
	}
	return at, size
}

// marker reports whether a line is the document marker m, and returns the rest of the line.
func marker(line []byte, m string) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(line, []byte(m))
	if !ok || len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return nil, false
	}
	return rest, true
}

func hasContent(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\ufeff")
	return len(line) > 0 && line[0] != '#'
}

// jsonDocuments splits a document that starts with "{" into JSON values, as the API server does. If it is not JSON, it stays one document,
// and decoding it reports the error.
func jsonDocuments(d Document) []Document {
	if !bytes.HasPrefix(bytes.TrimLeft(d.Data, jsonSpace), []byte{'{'}) {
		return []Document{d}
	}
	d.JSON = true
	var docs []Document
	dec := json.NewDecoder(bytes.NewReader(d.Data))
	last, line := 0, d.Line // where a value began
	for len(docs) <= MaxObjects {
		from := int(dec.InputOffset())
		var value json.RawMessage
		if err := dec.Decode(&value); errors.Is(err, io.EOF) {
			return docs
		} else if err != nil {
			return []Document{d}
		}
		part := d.Data[from:dec.InputOffset()]
		value = bytes.TrimLeft(part, jsonSpace)
		at := from + len(part) - len(value)
		lines, _ := LineColumn(d.Data[last:at], at-last)
		last, line = at, line+lines-1
		docs = append(docs, Document{Data: value, Line: line, JSON: true})
	}
	return docs
}

// jsonSpace is what JSON calls white space.
const jsonSpace = " \t\r\n"

// LineColumn converts an offset into a 1-based line and column; columns count characters.
func LineColumn(data []byte, offset int) (line, column int) {
	offset = min(offset, len(data))
	start := 0
	for line = 1; ; line++ {
		n, size := lineEnd(data[start:])
		next := start + n + size
		if size == 0 || next > offset {
			return line, 1 + utf8.RuneCount(data[start:offset])
		}
		start = next
	}
}
