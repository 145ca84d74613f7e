package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// collectInChild runs a Collector in a process of its own.
func collectInChild(t *testing.T, fifos string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOGS_TEST_COLLECT="+fifos)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if b := make([]byte, 9); func() bool { _, err := io.ReadFull(out, b); return err != nil }() {
		t.Fatalf("child says %q", b)
	}
	return cmd
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

func TestKilledUnderLoadAtMostTheBatchInHandIsLost(t *testing.T) {
	dir := t.TempDir()
	fifos, path := filepath.Join(dir, "fifos"), filepath.Join(dir, "0.log")
	c := newCollector(t, fifos)
	o, _ := attach(t, c, "a", path)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	const rounds = 4
	stop := make(chan struct{})
	var writer sync.WaitGroup
	written := 0
	writer.Go(func() {
		for ; !isClosed(stop); written++ {
			fmt.Fprintf(o, "%09d\n", written)
		}
	})
	for round := range rounds {
		child := collectInChild(t, fifos)
		size := int64(0)
		if st, err := os.Stat(path); err == nil {
			size = st.Size()
		}
		eventually(t, "the child writes", func() bool {
			st, err := os.Stat(path)
			return err == nil && st.Size() > size+int64(round+1)*100000
		})
		kill(t, child)
	}
	c = newCollector(t, fifos)
	if err := c.Recover(); err != nil {
		t.Fatal(err)
	}
	close(stop)
	writer.Wait()
	finish(t, c, "a")
	out, _ := readFile(t, path, ReadOptions{Tail: -1})
	gaps, last := 0, -1
	for line := range strings.Lines(out) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || n <= last {
			t.Fatalf("line %q after %d: torn, doubled or out of order", line, last)
		}
		if lost := n - last - 1; lost > 0 {
			gaps++
			if lost*10 > readSize+10 {
				t.Errorf("%d lines lost at once, more than a batch", lost)
			}
		}
		last = n
	}
	if last != written-1 || gaps > rounds {
		t.Errorf("last line %d of %d, %d gaps after %d kills", last, written, gaps, rounds)
	}
}

func TestIdleContainersAreCheap(t *testing.T) {
	dir := t.TempDir()
	c := newCollector(t, filepath.Join(dir, "fifos"))
	inUse := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := inUse()
	const n = 30
	for i := range n {
		o, e := attach(t, c, strconv.Itoa(i), filepath.Join(dir, strconv.Itoa(i)+".log"))
		put(t, o, "started\n")
		put(t, e, "started\n")
	}
	eventually(t, "all wrote", func() bool {
		for i := range n {
			if strings.Count(content(t, filepath.Join(dir, strconv.Itoa(i)+".log")), "\n") != 2 {
				return false
			}
		}
		return true
	})
	used := inUse() - before
	t.Logf("%d KiB for %d containers", used>>10, n)
	if used > 1<<20 && !raceEnabled {
		t.Errorf("%d KiB for %d idle containers, want less than 1 MiB", used>>10, n)
	}
}

// BenchmarkCollect copies 100 MB of 100-byte lines.
func BenchmarkCollect(b *testing.B) {
	dir := b.TempDir()
	chunk := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 600)
	const total = 100 << 20
	b.SetBytes(total)
	for b.Loop() {
		c := NewCollector(filepath.Join(dir, "fifos"), slog.New(slog.DiscardHandler))
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
