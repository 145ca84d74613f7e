// Package jsonlimit limits how much memory JSON takes when it is decoded: a value of two bytes can take more than a hundred. It has no goroutines.
package jsonlimit

import (
	"errors"
	"fmt"
	"io"
)

// ErrTooMany is the error of JSON that has too many values.
var ErrTooMany = errors.New("that takes too much memory")

// NewReader returns a reader of what from has, which ends with ErrTooMany once that has more values than most. What is in strings is not counted.
func NewReader(from io.Reader, most int) io.Reader { return &reader{from: from, most: most} }

type reader struct {
	from            io.Reader
	most, values    int
	quoted, escaped bool
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	for _, c := range b[:n] {
		switch {
		case r.escaped:
			r.escaped = false
		case c == '"':
			r.quoted = !r.quoted
		case r.quoted:
			r.escaped = c == '\\'
		case c == '[' || c == '{' || c == ',':
			r.values++
		}
	}
	if r.values > r.most {
		return 0, fmt.Errorf("the JSON has more than %d values: %w", r.most, ErrTooMany)
	}
	return n, err
}
