package logs

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
)

// stubClock is a clock that jumps.
type stubClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *stubClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *stubClock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// familyAt fails the test when the directory cannot be read.
func familyAt(t *testing.T, path string) family {
	t.Helper()
	f, err := listFamily(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// checkSizes checks that no file is larger than allowed, uncompressed.
func checkSizes(t *testing.T, path string, limits Limits) {
	t.Helper()
	if limits.MaxSize == 0 {
		return
	}
	f := familyAt(t, path)
	if len(f.tmp) > 0 {
		t.Errorf("left behind: %v", f.tmp)
	}
	for _, r := range f.old {
		if n := len(unpacked(t, r)); int64(n) > limits.MaxSize {
			t.Errorf("%s had %d bytes, more than %d", r.stamp, n, limits.MaxSize)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Size() > limits.MaxSize {
		t.Errorf("the log file: %v %v", st, err)
	}
}

// unpacked returns the content of a rotated file.
func unpacked(t *testing.T, r rotated) string {
	t.Helper()
	if r.plain != "" {
		return content(t, r.plain)
	}
	z, err := gzip.NewReader(strings.NewReader(content(t, r.gz)))
	if err != nil {
		t.Fatal(r.gz, err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(z); err != nil {
		t.Fatal(r.gz, err)
	}
	return b.String()
}

// settled waits until all compression is complete.
func (c *Collector) settled(t *testing.T) {
	t.Helper()
	eventually(t, "old files are in order", func() bool {
		c.keeper.mu.Lock()
		defer c.keeper.mu.Unlock()
		return !c.keeper.busy && !c.keeper.reclaiming.Load()
	})
}

func TestTheLineThatWouldExceedTheLimitIsTheFirstOfTheNextFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	const line = len("2026-01-02T03:04:05.000000006Z stdout F 00\n")
	c := newCollectorWith(t, Config{Dir: filepath.Join(dir, "fifos"), Limits: Limits{MaxSize: int64(3*line + 1), MaxFiles: 5}})
	clock := &stubClock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.keeper.now = clock.now
	o, _ := attach(t, c, "a", path)
	var want strings.Builder
	for i := range 17 {
		if i == 9 { // the clock is set back: names still sort by time
			clock.set(time.Date(1970, 1, 1, 0, 0, 7, 0, time.UTC))
		}
		put(t, o, fmt.Sprintf("%02d\n", i))
		if i >= 17-3*4-2 {
			fmt.Fprintf(&want, "%02d\n", i)
		}
		eventually(t, "it is written", func() bool { return has(path, fmt.Sprintf(" %02d\n", i)) })
	}
	c.settled(t)
	finish(t, c, "a")
	f := familyAt(t, path)
	var got []string
	for i, r := range f.old {
		if (r.gz != "") == (i == len(f.old)-1) || (r.gz != "") == (r.plain != "") {
			t.Errorf("file %d of %d: %+v", i+1, len(f.old), r)
		}
		if s := unpacked(t, r); len(s) != 3*line {
			t.Errorf("%s has %d bytes, want %d", r.stamp, len(s), 3*line)
		}
		got = append(got, r.stamp)
	}
	if want := []string{"20260102-030406", "20260102-030407", "20260102-030408", "20260102-030409"}; !slices.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
	if out, _ := readFile(t, path, ReadOptions{Tail: -1}); out != want.String() {
		t.Errorf("read %q, want %q", out, want.String())
	}
	st, err := os.Stat(f.old[0].gz)
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestNoFileExceedsTheLimitHoweverLoud(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	limits := Limits{MaxSize: 100_000, MaxFiles: 4}
	c := newCollectorWith(t, Config{Dir: filepath.Join(dir, "fifos"), Limits: limits})
	o, e := attach(t, c, "a", path)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i, f := range []*os.File{o, e} {
		writers.Go(func() { flood(f, i, stop) })
	}
	look := func() int { // between two changes: listing a directory while it changes may show removed and new files
		c.keeper.names.Lock()
		defer c.keeper.names.Unlock()
		return len(familyAt(t, path).old)
	}
	for i, n := 0, 0; i < 300 || n < 3; i++ {
		if n = look(); n > 3 {
			t.Fatalf("%d files and that which is written to", n)
		}
	}
	close(stop)
	writers.Wait()
	finish(t, c, "a")
	c.settled(t)
	checkSizes(t, path, limits)
	f := familyAt(t, path)
	for i, r := range f.old {
		if s := unpacked(t, r); int64(len(s)) < limits.MaxSize*6/10 {
			t.Errorf("file %d has %d bytes only", i, len(s))
		}
	}
	// The remaining files hold the end of the output, without a missing line.
	out, errs := readFile(t, path, ReadOptions{Tail: -1})
	for stream, s := range []string{out, errs} {
		_, s, _ = strings.Cut(s, "\n") // may have begun in a file that is gone
		var n int
		if _, err := fmt.Sscanf(s, fmt.Sprintf("%d/%%d ", stream), &n); err != nil {
			t.Fatal(err)
		}
		left := len(s)
		for line := range strings.Lines(s) {
			left -= len(line)
			if want := string(appendLine(nil, stream, n)); line != want {
				t.Fatalf("line %d has %d bytes of %d, then %d follow: %.40q", n, len(line), len(want), left, line)
			}
			n++
		}
	}
}

func TestCompressionResumesAfterAKill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ns_p_u", "c", "3.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, s string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := func(i int) string { return entryOf(0, fmt.Sprintf("%d\n", i)) }
	write("3.log", line(6))
	write("3.log.20260101-000001", line(1)) // not compressed
	write("3.log.20260101-000001.tmp", "half")
	write("3.log.20260101-000002", line(2)) // compressed, and not removed yet
	write("3.log.20260101-000002.gz", zipped(t, line(2)))
	write("3.log.20260101-000003.gz", zipped(t, line(3)))
	write("3.log.20260101-000004", line(4))
	write("3.log.20260101-000005", line(5))
	write("3.log.bak", "somebody else's")
	const all = "1\n2\n3\n4\n5\n6\n"
	if out, _ := readFile(t, path, ReadOptions{Tail: -1}); out != all {
		t.Errorf("before: %q", out)
	}
	c := newCollectorWith(t, Config{
		Dir: filepath.Join(dir, "fifos"), Limits: Limits{MaxSize: 1, MaxFiles: 6},
		PodDirs: func() []string { return []string{filepath.Join(dir, "ns_p_u"), filepath.Join(dir, "none")} },
	})
	c.Sweep()
	c.settled(t)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"3.log", "3.log.20260101-000001.gz", "3.log.20260101-000002.gz", "3.log.20260101-000003.gz", "3.log.20260101-000004.gz", "3.log.20260101-000005", "3.log.bak"}
	if !slices.Equal(names, want) {
		t.Errorf("there are %v", names)
	}
	if out, _ := readFile(t, path, ReadOptions{Tail: -1}); out != all {
		t.Errorf("after: %q", out)
	}
}

func zipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A log reads the same however it is split into files, and whichever of them are compressed.
func TestSeveralFilesReadLikeOne(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		var entries []string
		for range rnd.IntN(60) {
			entries = append(entries, fmt.Sprintf("2026-01-02T03:04:%02d.000000006Z %s %s %s\n", rnd.IntN(60),
				[]string{stdoutName, stderrName}[rnd.IntN(2)], []string{"F", "F", "P"}[rnd.IntN(3)], strings.Repeat("x", rnd.IntN(30))))
		}
		dir := t.TempDir()
		one, path := filepath.Join(dir, "one.log"), filepath.Join(dir, "0.log")
		appendTo(t, one, strings.Join(entries, ""))
		rest := entries
		for i := range rnd.IntN(5) {
			n := rnd.IntN(len(rest) + 1)
			name, s := fmt.Sprintf("%s.20260101-00000%d", path, i), strings.Join(rest[:n], "")
			rest = rest[n:]
			if rnd.IntN(2) == 0 {
				name, s = name+gzSuffix, zipped(t, s)
			}
			appendTo(t, name, s)
		}
		appendTo(t, path, strings.Join(rest, ""))
		for _, o := range []ReadOptions{
			{Tail: -1},
			{Tail: 0},
			{Tail: 1},
			{Tail: rnd.IntN(70)},
			{Tail: rnd.IntN(70), Timestamps: true},
			{Tail: -1, LimitBytes: 1 + rnd.Int64N(300)},
			{Tail: -1, Since: time.Date(2026, 1, 2, 3, 4, rnd.IntN(60), 0, time.UTC)},
		} {
			out1, err1 := readFile(t, one, o)
			out2, err2 := readFile(t, path, o)
			if out1 != out2 || err1 != err2 {
				t.Fatalf("%+v: got %q %q, want %q %q\n%s", o, out2, err2, out1, err1, strings.Join(entries, ""))
			}
		}
	}
}

func TestADamagedFileDoesNotHideTheLaterOnes(t *testing.T) {
	whole := zipped(t, strings.Repeat(entryOf(0, "one\n"), 1000))
	for name, damaged := range map[string]string{
		"empty": "", "zeros": strings.Repeat("\x00", 100), "short": whole[:len(whole)/2], "head": whole[:5],
		"changed": whole[:len(whole)-20] + "xxxxxxxx" + whole[len(whole)-12:],
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			appendTo(t, path+".20260101-000000.gz", damaged)
			appendTo(t, path, entryOf(0, "two\n"))
			for _, n := range []int{-1, 5000, 1} {
				if out, _ := readFile(t, path, ReadOptions{Tail: n}); strings.ReplaceAll(out, "one\n", "") != "two\n" {
					t.Errorf("tail %d: %.100q", n, out)
				}
			}
		})
	}
}

func TestFollowSeesEveryLineOverManyRotations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollectorWith(t, Config{Dir: filepath.Join(dir, "fifos"), Limits: Limits{MaxSize: 4000, MaxFiles: 10000}})
	o, _ := attach(t, c, "a", path)
	f := follow(t.Context(), path, ReadOptions{Tail: -1})
	var want strings.Builder
	for i := range 20000 {
		line := fmt.Sprintf("%d\n", i)
		put(t, o, line)
		want.WriteString(line)
	}
	finish(t, c, "a")
	close(f.done)
	f.wait(t)
	if got := f.out.String(); got != want.String() {
		t.Errorf("got %d bytes, want %d", len(got), want.Len())
	}
	if n := len(familyAt(t, path).old); n < 100 {
		t.Errorf("%d rotations only", n)
	}
}

func TestALogThatCannotBeRotatedGrows(t *testing.T) {
	var said syncBuffer
	c := NewCollector(Config{Dir: t.TempDir(), Limits: Limits{MaxSize: 100, MaxFiles: 2}, Log: slog.New(slog.NewTextHandler(&said, nil))})
	defer func() { _ = c.Close() }()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c.keeper.now = func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	// A directory has the name of the rotated file.
	if err := os.MkdirAll(filepath.Join(dir, "0.log.20260101-000000", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	o, _ := attach(t, c, "a", path)
	for i := range 10 {
		put(t, o, fmt.Sprintf("%d\n", i))
		eventually(t, "it is written", func() bool { return strings.Contains(content(t, path), fmt.Sprintf(" %d\n", i)) })
	}
	finish(t, c, "a")
	if n := strings.Count(content(t, path), "\n"); n != 10 {
		t.Errorf("%d lines", n)
	}
	if n := strings.Count(said.String(), "cannot rotate"); n != 1 {
		t.Errorf("told %d times: %s", n, said.String())
	}
}

func TestNumberOf(t *testing.T) {
	for name, want := range map[string]int{
		"0.log": 0, "12.log": 12, "3.log.20260101-000000": 3, "3.log.20260101-000000.gz": 3,
		"3.log.20260101-000000.tmp": -1, "3.log.1": -1, "x.log": -1, ".log": -1, "3.txt": -1, "-1.log": -1, "3.log.gz": -1, "99999999999999999999.log": -1,
	} {
		if got := NumberOf(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
