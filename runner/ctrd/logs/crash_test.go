package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// collectInChild runs a Collector in a child process.
func collectInChild(t *testing.T, fifos string, env ...string) *exec.Cmd {
	t.Helper()
	cmd, out := startChild(t, fifos, env...)
	if b := make([]byte, 9); func() bool { _, err := io.ReadFull(out, b); return err != nil }() {
		t.Fatalf("child says %q", b)
	}
	return cmd
}

// startChild starts the process and returns its output, which is "attached" once it has recovered.
func startChild(t *testing.T, fifos string, env ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "LOGS_TEST_COLLECT="+fifos), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, out
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

func TestKilledWhileIdleNothingIsLost(t *testing.T) {
	dir := t.TempDir()
	fifos, path := filepath.Join(dir, "fifos"), filepath.Join(dir, "0.log")
	c := newCollector(t, fifos)
	o, _ := attach(t, c, "a", path)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	say := func(s string) { put(t, o, s); want.WriteString(s) }
	for round := range 5 {
		child := collectInChild(t, fifos)
		for i := range 200 {
			say(fmt.Sprintf("round %d line %d\n", round, i))
		}
		last := fmt.Sprintf("round %d line 199\n", round)
		eventually(t, "the child writes", func() bool { return strings.Contains(content(t, path), last) })
		kill(t, child)
		for i := range 500 { // waits in the FIFO
			say(fmt.Sprintf("round %d dead %d\n", round, i))
		}
	}
	c = newCollector(t, fifos)
	if err := c.Recover(); err != nil {
		t.Fatal(err)
	}
	finish(t, c, "a")
	if out, _ := readFile(t, path, ReadOptions{Tail: -1}); out != want.String() {
		t.Errorf("%d bytes of %d", len(out), want.Len())
	}
}

func TestKilledUnderLoadNothingIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	killUnderLoad(t, 35, Limits{})
}

func TestKilledUnderLoadWhileFilesRotateNothingIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	killUnderLoad(t, 35, rotating())
}

// rotating are limits that cause constant rotation and compression, without removing files.
func rotating() Limits { return Limits{MaxSize: 128 << 10, MaxFiles: 1 << 20} }

// killUnderLoad kills a Collector many times at random moments, while both streams are written at full speed.
func killUnderLoad(t *testing.T, kills int, limits Limits) {
	t.Helper()
	b, err := json.Marshal(limits)
	if err != nil {
		t.Fatal(err)
	}
	env := "LOGS_TEST_LIMITS=" + string(b)
	dir := t.TempDir()
	fifos, path := filepath.Join(dir, "fifos"), filepath.Join(dir, "0.log")
	c := newCollector(t, fifos)
	o, e := attach(t, c, "a", path)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var lines [2]int
	for i, f := range []*os.File{o, e} {
		writers.Go(func() { lines[i] = flood(f, i, stop) })
	}
	for round := range kills {
		var child *exec.Cmd
		if round%4 == 0 { // while it starts, or soon after
			child, _ = startChild(t, fifos, env)
			<-time.After(rand.N(12 * time.Millisecond))
		} else {
			child = collectInChild(t, fifos, env)
			<-time.After(rand.N(time.Millisecond))
		}
		kill(t, child)
	}
	c = newCollectorWith(t, Config{Dir: fifos, Limits: limits})
	if err := c.Recover(); err != nil {
		t.Fatal(err)
	}
	close(stop)
	writers.Wait()
	finish(t, c, "a")
	out, errs := readFile(t, path, ReadOptions{Tail: -1})
	for i, got := range []string{out, errs} {
		compareLines(t, got, i, lines[i])
	}
	c.keeper.tidy(path)
	c.settled(t)
	checkSizes(t, path, limits)
	t.Logf("%d and %d lines, %d and %d bytes", lines[0], lines[1], len(out), len(errs))
}

// flood writes lines, in pieces cut at random, until stop is closed, and returns their number.
func flood(f *os.File, stream int, stop <-chan struct{}) int {
	rnd := rand.New(rand.NewPCG(0, uint64(stream)))
	n := 0
	var b []byte
	for ; !isClosed(stop); n++ {
		b = appendLine(b, stream, n)
		for size := 1 + rnd.IntN(8000); len(b) > size; size = 1 + rnd.IntN(8000) {
			_, _ = f.Write(b[:size])
			b = b[size:]
		}
	}
	_, _ = f.Write(b)
	return n
}

// appendLine appends line n of a stream. Most are short, some longer than one entry of a log file.
func appendLine(b []byte, stream, n int) []byte {
	size := n * 37 % 150
	if n%50 == 49 {
		size = n * 7919 % (3 * maxLine)
	}
	b = fmt.Appendf(b, "%d/%d ", stream, n)
	return append(append(b, strings.Repeat("x", size)...), '\n')
}

func compareLines(t *testing.T, got string, stream, want int) {
	t.Helper()
	n := 0
	var line []byte
	for g := range strings.Lines(got) {
		line = appendLine(line[:0], stream, n)
		if g != string(line) {
			t.Fatalf("line %d of %d is %.40q (%d bytes), want %.40q (%d)", n, want, g, len(g), line, len(line))
		}
		n++
	}
	if n != want {
		t.Errorf("%d lines, want %d", n, want)
	}
}

// BenchmarkIdleContainers is the memory that a container takes which has written a line and waits.
func BenchmarkIdleContainers(b *testing.B) {
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	const n = 30
	for b.Loop() {
		dir := b.TempDir()
		c := newCollector(b, filepath.Join(dir, "fifos"))
		before := inUse()
		for i := range n {
			o, e := attach(b, c, strconv.Itoa(i), filepath.Join(dir, strconv.Itoa(i)+".log"))
			put(b, o, "started\n")
			put(b, e, "started\n")
		}
		eventually(b, "all wrote", func() bool {
			for i := range n {
				if strings.Count(content(b, filepath.Join(dir, strconv.Itoa(i)+".log")), "\n") != 2 {
					return false
				}
			}
			return true
		})
		b.ReportMetric(float64(inUse()-before)/n, "B/container")
	}
}

// BenchmarkCollect copies 100 MB of 100-byte lines.
func BenchmarkCollect(b *testing.B) {
	dir := b.TempDir()
	chunk := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 600)
	const total = 100 << 20
	b.SetBytes(total)
	for b.Loop() {
		c := NewCollector(Config{Dir: filepath.Join(dir, "fifos"), Log: slog.New(slog.DiscardHandler)})
		path := filepath.Join(dir, "0.log")
		o, _, err := c.Attach("a", path)
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.OpenFile(o, os.O_RDWR, 0)
		if err != nil {
			b.Fatal(err)
		}
		for sent := 0; sent < total; sent += len(chunk) {
			if _, err := f.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.Finish(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(f.Close(), c.Close(), os.Remove(path)); err != nil {
			b.Fatal(err)
		}
	}
}
