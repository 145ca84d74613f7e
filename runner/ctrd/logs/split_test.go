package logs

import (
	"bytes"
	"strings"
	"testing"
)

// split runs the pieces of a stream through a splitter and returns the lines without time and stream.
func split(pieces ...string) []string {
	s := splitter{stream: stdoutName}
	var out []byte
	for _, p := range pieces {
		out = s.add(out, []byte("T"), []byte(p))
	}
	out = s.end(out, []byte("T"))
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "T stdout ")
	}
	if len(out) == 0 {
		return nil
	}
	return lines
}

func TestSplitter(t *testing.T) {
	full := strings.Repeat("x", maxLine)
	tests := []struct {
		name string
		in   []string
		want []string
	}{
		{"nothing makes no line", []string{""}, nil},
		{"one line", []string{"a\n"}, []string{"F a"}},
		{"an empty line stays", []string{"\n\n"}, []string{"F ", "F "}},
		{"a line in three reads is one line", []string{"a", "b", "c\nd\n"}, []string{"F abc", "F d"}},
		{"no newline at the end is a partial line", []string{"a\nb"}, []string{"F a", "P b"}},
		{"one carriage return is part of the newline", []string{"a\r\nb\r\r\n"}, []string{"F a", "F b\r"}},
		{"a carriage return in another read than its newline", []string{"a\r", "\nb"}, []string{"F a", "P b"}},
		{"a carriage return inside a line stays", []string{"10%\r", "20%\n"}, []string{"F 10%\r20%"}},
		{"the longest line is whole", []string{full + "\n"}, []string{"F " + full}},
		{"the longest line with carriage return is whole", []string{full, "\r", "\n"}, []string{"F " + full}},
		{"one byte more is cut", []string{full + "y\n"}, []string{"P " + full, "F y"}},
		{"one byte more, unfinished", []string{full, "y"}, []string{"P " + full, "P y"}},
		{"a carriage return as byte too many that ends nothing", []string{full + "\r", "z\n"}, []string{"P " + full, "F \rz"}},
		{"a very long line in one read", []string{full + full + full + "\n"}, []string{"P " + full, "P " + full, "F " + full}},
		{"a very long line in two reads", []string{full + full[1:], "12\n"}, []string{"P " + full, "P " + full[1:] + "1", "F 2"}},
		{"any bytes", []string{"\x00\xff \t\n"}, []string{"F \x00\xff \t"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := split(tt.in...)
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got %.80q, want %.80q", got, tt.want)
			}
			// The result must not depend on how reads are cut, except for pieces that were already written.
			if one := split(strings.Join(tt.in, "")); strings.Join(one, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("in one read: got %.80q, want %.80q", one, tt.want)
			}
		})
	}
}

func TestSplitterFlushKeepsACarriageReturn(t *testing.T) {
	s := splitter{stream: stderrName}
	out := s.add(nil, []byte("T"), []byte("prompt: \r"))
	out = s.flush(out, []byte("T"))
	out = s.flush(out, []byte("T"))
	out = s.add(out, []byte("T"), []byte("\n"))
	if want := "T stderr P prompt: \nT stderr F \n"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// FuzzRoundTrip: whatever a program prints, and however reads cut it, Read prints it again.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n"), uint16(1), true)
	f.Add(bytes.Repeat([]byte("0123456789"), 5000), uint16(4096), false)
	f.Add(append(bytes.Repeat([]byte("x"), maxLine), "\r\ny"...), uint16(maxLine), true)
	f.Fuzz(func(t *testing.T, in []byte, cut uint16, flush bool) {
		s := splitter{stream: stdoutName}
		stamp := []byte("2026-01-02T03:04:05.000000006Z")
		var log []byte
		for rest := in; len(rest) > 0; {
			n := min(len(rest), int(cut)+1)
			log = s.add(log, stamp, rest[:n])
			rest = rest[n:]
			if flush {
				log = s.flush(log, stamp)
			}
		}
		log = s.end(log, stamp)
		for line := range bytes.Lines(log) {
			if len(line) > maxLine+len(stamp)+len(" stdout P \n") || !bytes.HasPrefix(line, stamp) || line[len(line)-1] != '\n' {
				t.Fatalf("bad line %.100q", line)
			}
		}
		got, other := readAll(t, log, ReadOptions{Tail: -1})
		want := strings.ReplaceAll(string(in), "\r\n", "\n")
		if got != want || other != "" {
			t.Fatalf("got %.200q, want %.200q (stderr %q)", got, want, other)
		}
		for _, n := range []int{0, 1, 3} {
			if got, _ := readAll(t, log, ReadOptions{Tail: n}); got != lastLines(want, n) {
				t.Fatalf("tail %d: got %.200q, want %.200q", n, got, lastLines(want, n))
			}
		}
	})
}

// lastLines finds the last n lines in the simplest way.
func lastLines(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
