package stats

import (
	"bytes"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// reader reads files of the kernel. It has one buffer for all of them: what it returns is good until the next call.
type reader struct {
	buf []byte
}

const (
	// keptBuffer is how much of a buffer stays between two requests, in bytes.
	keptBuffer = 64 << 10
	// maxFile is how much of a file is read, in bytes: a pod can make that of its interfaces as long as it likes.
	maxFile = 1 << 20
)

// release frees the buffer of a long file. Earlier results are invalid afterwards.
func (r *reader) release() {
	if len(r.buf) > keptBuffer {
		r.buf = nil
	}
}

// bytes returns the content of a file, of one that is too long the beginning, and nothing when it cannot be read: cgroups and
// processes come and go.
func (r *reader) bytes(elem ...string) []byte {
	f, err := os.Open(filepath.Join(elem...))
	if err != nil {
		return nil
	}
	defer f.Close()
	if r.buf == nil {
		r.buf = make([]byte, 8<<10)
	}
	n := 0
	for {
		m, err := f.Read(r.buf[n:])
		n += m
		if err == io.EOF || n >= maxFile {
			return r.buf[:n]
		}
		if err != nil {
			return nil
		}
		if n == len(r.buf) {
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
		}
	}
}

// number returns the only number of a file; ok is false when there is none, and for "max".
func (r *reader) number(elem ...string) (n uint64, ok bool) {
	return parse(bytes.TrimSpace(r.bytes(elem...)))
}

// value is number, or 0.
func (r *reader) value(elem ...string) uint64 {
	n, _ := r.number(elem...)
	return n
}

// counts reads lines that are a word and a number, in bytes when it ends with kB, into the numbers of these words. It reports whether the
// file has such lines.
func (r *reader) counts(to map[string]*uint64, elem ...string) (there bool) {
	for line := range lines(r.bytes(elem...)) {
		end := max(bytes.IndexAny(line, " \t"), 0)
		rest, kib := bytes.CutSuffix(bytes.TrimSpace(line[end:]), []byte(" kB"))
		n, ok := parse(rest)
		if !ok {
			continue
		}
		if there = true; kib {
			n <<= 10
		}
		if p := to[string(bytes.TrimSuffix(line[:end], []byte{':'}))]; p != nil {
			*p = n
		}
	}
	return there
}

// lines are those of a text without their ends.
func lines(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			var line []byte
			if line, text, _ = bytes.Cut(text, []byte{'\n'}); !yield(line) {
				return
			}
		}
	}
}

func parse(text []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	return n, err == nil
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// pressure reads a file of pressure stall information; nil: the kernel does not tell.
func (r *reader) pressure(elem ...string) *PSI {
	text := r.bytes(elem...)
	if len(text) == 0 {
		return nil
	}
	p := &PSI{}
	for line := range lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) == 0 {
			continue
		}
		to := &p.Some
		if fields[0] == "full" {
			to = &p.Full
		}
		for _, f := range fields[1:] {
			to.set(strings.Cut(f, "="))
		}
	}
	return p
}

func (s *Stall) set(key, value string, _ bool) {
	if key == "total" {
		s.Total = micros(number(value))
		return
	}
	avg, _ := strconv.ParseFloat(value, 64)
	switch key {
	case "avg10":
		s.Avg10 = avg
	case "avg60":
		s.Avg60 = avg
	case "avg300":
		s.Avg300 = avg
	}
}

func micros(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }

// interfaces reads the interfaces of a network from net/dev of a process in it, without the loopback.
func (r *reader) interfaces(elem ...string) []Interface {
	var all []Interface
	for line := range lines(r.bytes(elem...)) {
		name, counts, ok := strings.Cut(string(line), ":")
		f := strings.Fields(counts)
		if name = strings.TrimSpace(name); !ok || len(f) < 16 || name == "lo" {
			continue
		}
		all = append(all, Interface{
			Name: name, RxBytes: number(f[0]), RxPackets: number(f[1]), RxErrors: number(f[2]), RxDropped: number(f[3]),
			TxBytes: number(f[8]), TxPackets: number(f[9]), TxErrors: number(f[10]), TxDropped: number(f[11]),
		})
	}
	return all
}
