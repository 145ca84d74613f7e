package logs

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestADeletedLogIsRecreated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web", "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	o, _ := attach(t, c, "a", path)
	put(t, o, "one\n")
	eventually(t, "first line", func() bool { return strings.Contains(content(t, path), "one") })
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	put(t, o, "two\n")
	finish(t, c, "a")
	if got := plain(t, path); got != "stdout F two\n" {
		t.Errorf("got %q", got)
	}
}

func TestATornLineIsCutOffBeforeTheNext(t *testing.T) {
	const whole = "2026-01-02T03:04:05.000000006Z stdout F whole\n"
	long := strings.Repeat("x", 3*maxLine)
	tests := []struct{ name, before, after string }{
		{"an empty file", "", ""},
		{"a whole line", whole, whole},
		{"half a line", whole + whole[:40], whole},
		{"half a line alone", whole[:10], ""},
		{"half a line longer than any", whole + long, whole + long},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "0.log")
			if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
				t.Fatal(err)
			}
			c := newCollector(t, filepath.Join(dir, "fifos"))
			o, _ := attach(t, c, "a", path)
			put(t, o, "next\n")
			finish(t, c, "a")
			got, ok := strings.CutPrefix(content(t, path), tt.after)
			if !ok || stampRE.ReplaceAllString(got, "") != "stdout F next\n" {
				t.Errorf("got %.200q", got)
			}
		})
	}
}

func TestReopenAfterRotationSplitsNoLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	o, _ := attach(t, c, "a", path)
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range 20000 {
			fmt.Fprintf(o, "line %d\n", i)
		}
	})
	rotated := []string{}
	for i := range 20 {
		old := fmt.Sprintf("%s.%02d", path, i)
		if err := os.Rename(path, old); err != nil {
			t.Fatal(err)
		}
		if err := c.Reopen("a"); err != nil {
			t.Fatal(err)
		}
		rotated = append(rotated, old)
		runtime.Gosched()
	}
	writer.Wait()
	finish(t, c, "a")
	all := ""
	for _, p := range append(rotated, path) {
		all += plain(t, p)
	}
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "stdout F line %d\n", i)
	}
	if all != want.String() {
		t.Error("lines were lost, split or mixed up")
	}
	if err := c.Reopen("a"); err == nil {
		t.Error("Reopen of a finished container works")
	}
}

func TestADiskThatRefusesNeitherBlocksNorEndsAnything(t *testing.T) {
	dir := t.TempDir()
	logDir := filepath.Join(dir, "web")
	if err := os.WriteFile(logDir, nil, 0o600); err != nil { // in the way of the directory
		t.Fatal(err)
	}
	var said syncBuffer
	c := NewCollector(Config{Dir: filepath.Join(dir, "fifos"), Log: slog.New(slog.NewTextHandler(&said, nil))})
	defer func() { _ = c.Close() }()
	path := filepath.Join(logDir, "0.log")
	o, _ := attach(t, c, "a", path)
	many := strings.Repeat("lost\n", 50000) // far more than a FIFO holds
	put(t, o, many)
	eventually(t, "all is dropped and counted", func() bool { return c.Lost("a") == 50000 })
	if err := os.Remove(logDir); err != nil {
		t.Fatal(err)
	}
	put(t, o, "found\n")
	eventually(t, "resumed", func() bool { _, err := os.Stat(path); return err == nil && strings.Contains(content(t, path), "found") })
	finish(t, c, "a")
	if got := plain(t, path); got != "stderr F monopod: 50000 lines of output are missing here: mkdir "+logDir+": not a directory\nstdout F found\n" {
		t.Errorf("got %q", got)
	}
	log := said.String()
	if strings.Count(log, "output is dropped") != 1 || strings.Count(log, "droppedLines=50000") != 1 {
		t.Errorf("log: %s", log)
	}
}

func TestAFullDeviceIsAWriteErrorLikeAnother(t *testing.T) {
	c := NewCollector(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer func() { _ = c.Close() }()
	o, _ := attach(t, c, "a", "/dev/full")
	put(t, o, strings.Repeat("x\n", 100000))
	finish(t, c, "a")
	if _, err := unix.FcntlInt(o.Fd(), unix.F_GETFD, 0); err != nil {
		t.Error(err)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestBothStreamsAtFullSpeedMixNoBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	o, e := attach(t, c, "a", path)
	var want [2]bytes.Buffer
	var writers sync.WaitGroup
	for i, f := range []*os.File{o, e} {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		writers.Go(func() {
			w := io.MultiWriter(f, &want[i])
			for range 300 {
				line := bytes.Repeat([]byte{byte('a' + rnd.IntN(26))}, rnd.IntN(40000))
				_, _ = w.Write(line[:len(line)/2])
				_, _ = w.Write(append(line[len(line)/2:], '\n'))
			}
		})
	}
	writers.Wait()
	finish(t, c, "a")
	out, errs := readFile(t, path, ReadOptions{Tail: -1})
	if out != want[0].String() || errs != want[1].String() {
		t.Errorf("got %d and %d bytes, want %d and %d, or they differ", len(out), len(errs), want[0].Len(), want[1].Len())
	}
}
