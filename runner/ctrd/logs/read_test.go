package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// readAll writes a log file and reads it.
func readAll(tb testing.TB, log []byte, o ReadOptions) (stdout, stderr string) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "0.log")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		tb.Fatal(err)
	}
	return readFile(tb, path, o)
}

func readFile(tb testing.TB, path string, o ReadOptions) (stdout, stderr string) {
	tb.Helper()
	var out, errs bytes.Buffer
	if err := Read(tb.Context(), path, o, &out, &errs); err != nil {
		tb.Fatal(err)
	}
	return out.String(), errs.String()
}

const sample = `2026-01-01T00:00:01.000000000Z stdout F one
2026-01-01T00:00:02.000000000Z stderr F warn
2026-01-01T00:00:03.000000000Z stdout P long
2026-01-01T00:00:04.000000000Z stderr F between
torn line of a power cut
2026-01-01T00:00:05.000000000Z stdout P er and 
2026-01-01T00:00:06.000000000Z stdout F longest
2026-01-01T00:00:07.5+01:00 stdout F:future tags two words
`

func TestReadSelects(t *testing.T) {
	since := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	tests := []struct {
		name        string
		opts        ReadOptions
		out, stderr string
	}{
		{"all", ReadOptions{Tail: -1}, "one\nlonger and longest\ntags two words\n", "warn\nbetween\n"},
		{"nothing", ReadOptions{Tail: 0}, "", ""},
		{"the last line", ReadOptions{Tail: 1}, "tags two words\n", ""},
		{"the last three lines", ReadOptions{Tail: 3}, "longer and longest\ntags two words\n", "between\n"},
		{"more than there is", ReadOptions{Tail: 99}, "one\nlonger and longest\ntags two words\n", "warn\nbetween\n"},
		{"since, by the first piece of a line", ReadOptions{Tail: -1, Since: since("2026-01-01T00:00:04Z")}, "", "between\n"},
		{"with times", ReadOptions{Tail: 1, Timestamps: true}, "2026-01-01T00:00:07.5+01:00 tags two words\n", ""},
		{"with times, once for a line in pieces", ReadOptions{Tail: -1, Timestamps: true, Since: since("2026-01-01T00:00:03Z")}, "2026-01-01T00:00:03.000000000Z longer and longest\n", "2026-01-01T00:00:04.000000000Z between\n"},
		{"a limit of bytes", ReadOptions{Tail: -1, LimitBytes: 12}, "one\nlon", "warn\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, errs := readAll(t, []byte(strings.Replace(sample, "F:future tags", "F:future tags", 1)), tt.opts)
			if out != tt.out || errs != tt.stderr {
				t.Errorf("got %q and %q, want %q and %q", out, errs, tt.out, tt.stderr)
			}
		})
	}
}

func TestAStreamWithoutAWriterIsLeftOutAndDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if err := Read(t.Context(), path, ReadOptions{Tail: -1, LimitBytes: 8}, nil, &errs); err != nil || errs.String() != "warn\nbet" {
		t.Errorf("%q, %v", errs.String(), err)
	}
	if err := Read(t.Context(), path, ReadOptions{Tail: -1, LimitBytes: 8}, &out, nil); err != nil || out.String() != "one\nlong" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestReadKeepsTheOrderOfTheStreamsInOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var want strings.Builder
	var log strings.Builder
	for i := range 100 {
		stream := []string{"stdout", "stderr"}[i%2]
		fmt.Fprintf(&log, "2026-01-01T00:00:01.000000000Z %s F %d\n", stream, i)
		fmt.Fprintf(&want, "%d\n", i)
	}
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Read(t.Context(), path, ReadOptions{Tail: -1}, &out, &out); err != nil || out.String() != want.String() {
		t.Errorf("%v, got %q", err, out.String())
	}
}

func TestTailReadsOnlyTheEndOfABigFile(t *testing.T) {
	var log bytes.Buffer
	for i := range 200000 {
		fmt.Fprintf(&log, "2026-01-01T00:00:01.000000000Z stdout F line %d\n", i)
	}
	f := &countingReaderAt{r: bytes.NewReader(log.Bytes())}
	start, _, err := tailStart(f, int64(log.Len()), &tailCounter{want: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(log.Bytes()[start:], []byte{'\n'}); got != 1000 || log.Bytes()[start-1] != '\n' {
		t.Errorf("%d lines", got)
	}
	if f.n > 3*blockSize {
		t.Errorf("%d bytes were read", f.n)
	}
}

type countingReaderAt struct {
	r io.ReaderAt
	n int
}

func (c *countingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	c.n += len(p)
	return c.r.ReadAt(p, off)
}

func TestReadOfNothing(t *testing.T) {
	if err := Read(t.Context(), filepath.Join(t.TempDir(), "none"), ReadOptions{Tail: -1}, io.Discard, io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v is not about the missing file", err)
	}
	if out, errs := readAll(t, nil, ReadOptions{Tail: 5}); out+errs != "" {
		t.Errorf("an empty file gives %q %q", out, errs)
	}
}

// follower runs Read in the background.
type follower struct {
	out    syncBuffer
	done   chan struct{}
	result chan error
}

func follow(ctx context.Context, path string, o ReadOptions) *follower {
	f := &follower{done: make(chan struct{}), result: make(chan error, 1)}
	o.Follow, o.Done = true, f.done
	go func() { f.result <- Read(ctx, path, o, &f.out, &f.out) }()
	return f
}

func (f *follower) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-f.result:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Read did not return")
	}
}

func appendTo(t *testing.T, path, s string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	put(t, f, s)
}

const at = "2026-01-01T00:00:01.000000000Z stdout F "

func TestFollowContinuesAfterRotationUntilDone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	appendTo(t, path, at+"old\n"+at+"one\n")
	link := filepath.Join(t.TempDir(), "link.log")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	f := follow(t.Context(), link, ReadOptions{Tail: 1})
	says := func(want string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%q, have %q", want, f.out.String()), func() bool { return f.out.String() == want })
	}
	says("one\n")
	appendTo(t, path, at+"two\n"+at[:10])
	says("one\ntwo\n")
	appendTo(t, path, at[10:]+"three\n")
	says("one\ntwo\nthree\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path+".1", at+"four\n") // the writer has not reopened yet
	says("one\ntwo\nthree\nfour\n")
	appendTo(t, path, at+"five\n")
	says("one\ntwo\nthree\nfour\nfive\n")
	if err := os.WriteFile(path, []byte(at+"6\n"), 0o600); err != nil { // cut short
		t.Fatal(err)
	}
	says("one\ntwo\nthree\nfour\nfive\n6\n")
	appendTo(t, path, at+"seven\n")
	close(f.done)
	f.wait(t)
	says("one\ntwo\nthree\nfour\nfive\n6\nseven\n")
}

func TestFollowEndsWithItsContextAndAtTheLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, at+"one\n")
	ctx, cancel := context.WithCancel(t.Context())
	f := follow(ctx, path, ReadOptions{Tail: -1})
	limited := follow(ctx, path, ReadOptions{Tail: -1, LimitBytes: 6})
	eventually(t, "first line", func() bool { return f.out.String() == "one\n" })
	appendTo(t, path, at+"two\n")
	limited.wait(t)
	if got := limited.out.String(); got != "one\ntw" {
		t.Errorf("got %q", got)
	}
	cancel()
	f.wait(t)
}

func TestFollowOfACollectedLogSeesEveryLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	o, _ := attach(t, c, "a", path)
	f := follow(t.Context(), path, ReadOptions{Tail: -1})
	var want strings.Builder
	for i := range 5000 {
		line := fmt.Sprintf("%d\n", i)
		put(t, o, line)
		want.WriteString(line)
		if i == 0 {
			eventually(t, "the follower has begun", func() bool { return f.out.String() == line })
		}
		if i%1000 == 500 {
			if err := os.Rename(path, fmt.Sprintf("%s.%d", path, i)); err != nil {
				t.Fatal(err)
			}
			if err := c.Reopen("a"); err != nil {
				t.Fatal(err)
			}
			// One rotation at a time: a reader cannot find a file that was rotated before it looked. This line is written after Reopen, so
			// a reader that has seen it has opened the new file.
			put(t, o, "rotated\n")
			want.WriteString("rotated\n")
			eventually(t, "the follower has come to the new file", func() bool { return f.out.String() == want.String() })
		}
	}
	finish(t, c, "a")
	close(f.done)
	f.wait(t)
	if got := f.out.String(); got != want.String() {
		t.Errorf("got %d bytes, want %d", len(got), want.Len())
	}
}

func TestLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "containers")
	n := LinkName{Pod: "web", Namespace: "default", Container: "nginx", ID: "abc"}
	path := filepath.Join(dir, "web_default_nginx-abc.log")
	for _, target := range []string{"/a", "/a", "/b"} {
		if err := Link(dir, n, target); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(path); err != nil || got != target {
			t.Errorf("link to %q, %v", got, err)
		}
	}
	for range 2 {
		if err := Unlink(dir, n); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	n.Pod = strings.Repeat("p", 300)
	if base := filepath.Base(n.Path(dir)); len(base) != 255 || !strings.HasSuffix(base, "p_default_nginx-abc.log") {
		t.Errorf("name of %d bytes", len(base))
	}
	if err := Link(dir, n, "/a"); err != nil {
		t.Error(err)
	}
}

// TestFilesThatBeginAlikeAreAllRead: pieces of long lines that were read at once have the same time, and may have the same text.
func TestFilesThatBeginAlikeAreAllRead(t *testing.T) {
	t.Parallel()
	piece := "2026-01-02T03:04:05.000000006Z stdout F " + strings.Repeat("x", 1000)
	for _, gz := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "0.log")
		want := ""
		for n, name := range []string{".20260102-030405", ".20260102-030406", ""} {
			text := fmt.Sprintf("%s\n2026-01-02T03:04:05.000000006Z stdout F %d\n", piece, n)
			want += fmt.Sprintf("%s\n%d\n", piece[40:], n)
			if gz && name != "" {
				name, text = name+gzSuffix, zipped(t, text)
			}
			if err := os.WriteFile(path+name, []byte(text), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		if out, _ := readFile(t, path, ReadOptions{Tail: -1}); out != want {
			t.Errorf("compressed: %t: %d bytes, want %d", gz, len(out), len(want))
		}
	}
}
