package logs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LOGS_TEST_COLLECT"); dir != "" {
		collectForEver(dir)
	}
	goleak.VerifyTestMain(m)
}

// collectForEver runs in a child process until it is killed.
func collectForEver(dir string) {
	cfg := Config{Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if s := os.Getenv("LOGS_TEST_LIMITS"); s != "" {
		if err := json.Unmarshal([]byte(s), &cfg.Limits); err != nil {
			panic(err)
		}
	}
	c := NewCollector(cfg)
	if err := c.Recover(); err != nil {
		panic(err)
	}
	fmt.Println("attached")
	select {}
}

// eventually fails the test if cond does not become true within a minute.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatal("did not happen:", what)
}

func newCollector(t testing.TB, dir string) *Collector {
	t.Helper()
	return newCollectorWith(t, Config{Dir: dir})
}

func newCollectorWith(t testing.TB, cfg Config) *Collector {
	t.Helper()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	c := NewCollector(cfg)
	c.delay = time.Hour // however slow a test writes a line, it is written as one
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// openShim opens a FIFO as the shim does.
func openShim(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func attach(t testing.TB, c *Collector, id, path string) (stdout, stderr *os.File) {
	t.Helper()
	o, e, err := c.Attach(id, path)
	if err != nil {
		t.Fatal(err)
	}
	return openShim(t, o), openShim(t, e)
}

func finish(t *testing.T, c *Collector, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Finish(ctx, id); err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, f *os.File, s string) {
	t.Helper()
	if _, err := f.WriteString(s); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// has reports whether a file contains a text; during a rotation the file may be missing briefly.
func has(path, text string) bool {
	b, _ := os.ReadFile(path)
	return strings.Contains(string(b), text)
}

var stampRE = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z `)

// plain returns the log file without times, and fails if a line has none.
func plain(t *testing.T, path string) string {
	t.Helper()
	s := content(t, path)
	out := stampRE.ReplaceAllString(s, "")
	if n := strings.Count(s, "\n"); len(s)-len(out) != n*len("2006-01-02T15:04:05.000000000Z ") {
		t.Errorf("a line of %q has no time", s)
	}
	return out
}

func TestOutputBecomesALogFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods", "default_web_1", "web", "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	o, e := attach(t, c, "a", path)
	put(t, o, "hello\nwor")
	eventually(t, "a line is written at once", func() bool { return plain(t, path) == "stdout F hello\n" })
	put(t, e, "oops\n")
	eventually(t, "the other stream", func() bool { return strings.Contains(content(t, path), " stderr F oops\n") })
	put(t, o, "ld\nthe end")
	finish(t, c, "a")
	if got, want := plain(t, path), "stdout F hello\nstderr F oops\nstdout F world\nstdout P the end\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("directory: %v, %v", st.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "fifos")); len(left) != 0 || len(c.IDs()) != 0 {
		t.Errorf("left behind: %v, attached %v", left, c.IDs())
	}
	finish(t, c, "a")
	finish(t, c, "never attached")
}

func TestAttachIsIdempotentAndMakesTheFileAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	o1, e1, err := c.Attach("a", path)
	if err != nil {
		t.Fatal(err)
	}
	o2, e2, err := c.Attach("a", path)
	if err != nil || o1 != o2 || e1 != e2 {
		t.Errorf("second Attach: %s %s %v", o2, e2, err)
	}
	if _, _, err := c.Attach("a", path+"x"); err == nil {
		t.Error("another file was accepted")
	}
	for _, id := range []string{"", ".", "..", "../x", "a/b"} {
		if _, _, err := c.Attach(id, path); err == nil {
			t.Errorf("id %q was accepted", id)
		}
		if err := c.Finish(t.Context(), id); err == nil {
			t.Errorf("Finish with id %q was accepted", id)
		}
	}
	if content(t, path) != "" {
		t.Error("not empty")
	}
	finish(t, c, "a")
}

func TestTheBeginningOfALineBecomesVisibleAfterAWhile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	c.delay = 20 * time.Millisecond
	o, _ := attach(t, c, "a", path)
	put(t, o, "Password: ")
	eventually(t, "the prompt is written", func() bool { return plain(t, path) == "stdout P Password: \n" })
	put(t, o, "secret\n")
	finish(t, c, "a")
	out, _ := readFile(t, path, ReadOptions{Tail: 1})
	if out != "Password: secret\n" {
		t.Errorf("got %q", out)
	}
}

func TestRestartsLoseNothing(t *testing.T) {
	dir := t.TempDir()
	fifos, path := filepath.Join(dir, "fifos"), filepath.Join(dir, "0.log")
	c := newCollector(t, fifos)
	o, e := attach(t, c, "a", path)
	put(t, o, "one\ntw")
	eventually(t, "first line", func() bool { return strings.Contains(content(t, path), "one") })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, o, "o\nthree\n")
	put(t, e, "while nobody looked\n")
	if _, _, err := c.Attach("b", path); err == nil {
		t.Error("Attach works after Close")
	}

	c = newCollector(t, fifos)
	if err := c.Recover(); err != nil {
		t.Fatal(err)
	}
	put(t, o, "four\n")
	finish(t, c, "a")
	out, errs := readFile(t, path, ReadOptions{Tail: -1})
	if out != "one\ntwo\nthree\nfour\n" || errs != "while nobody looked\n" {
		t.Errorf("got %q and %q", out, errs)
	}
}

func TestRecoverCopesWithWhatItFinds(t *testing.T) {
	dir := t.TempDir()
	fifos := filepath.Join(dir, "fifos")
	c := newCollector(t, fifos)
	if err := c.Recover(); err != nil {
		t.Error("no directory:", err)
	}
	o, _ := attach(t, c, "abandoned", filepath.Join(dir, "abandoned.log"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	o.Close() // the shim is gone
	for path, s := range map[string]string{"halfmade/.meta.json": "", "damaged/meta.json": "{"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(fifos, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(fifos, path), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c = newCollector(t, fifos)
	if err := c.Recover(); err == nil || !strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "halfmade") {
		t.Error("Recover:", err)
	}
	if got := c.IDs(); len(got) != 1 || got[0] != "abandoned" {
		t.Errorf("attached: %v", got)
	}
	finish(t, c, "abandoned")
	finish(t, c, "damaged")
	if left, _ := os.ReadDir(fifos); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestDamageToOneContainerIsNoDamageToOthers: whatever happened to the files of one container, the others are attached, and so is that one
// when its owner passes the log path. Files of an earlier boot are removed.
func TestDamageToOneContainerIsNoDamageToOthers(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"empty":     func(dir string) error { return os.Truncate(filepath.Join(dir, metaName), 0) },
		"truncated": func(dir string) error { return os.Truncate(filepath.Join(dir, metaName), 9) },
		"garbage":   func(dir string) error { return os.WriteFile(filepath.Join(dir, metaName), []byte("\x00\xff{"), 0o600) },
		"too large": func(dir string) error { return os.Truncate(filepath.Join(dir, metaName), 1<<30) },
		"relative path": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, metaName), []byte(`{"logPath":"x"}`), 0o600)
		},
		"directory": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, metaName)), os.MkdirAll(filepath.Join(dir, metaName, "in"), 0o700))
		},
		"dangling link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, metaName)), os.Symlink("/none", filepath.Join(dir, metaName)))
		},
		"FIFO": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, metaName)), unix.Mkfifo(filepath.Join(dir, metaName), 0o600))
		},
		"journal": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, journalName)), os.Mkdir(filepath.Join(dir, journalName), 0o700))
		},
		"short journal": func(dir string) error { return os.Truncate(filepath.Join(dir, journalName), 10) },
		"spool":         func(dir string) error { return os.Mkdir(filepath.Join(dir, stdoutName+spoolSuffix), 0o700) },
		"stray file":    func(dir string) error { return os.WriteFile(filepath.Join(filepath.Dir(dir), "stray"), nil, 0o600) },
		"stray in it":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "stray"), []byte("x"), 0o600) },
		"no FIFO":       func(dir string) error { return os.Remove(filepath.Join(dir, stderrName)) },
		"file for a FIFO": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, stderrName)), os.WriteFile(filepath.Join(dir, stderrName), []byte("x"), 0o600))
		},
		"directory for a FIFO": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, stderrName)), os.MkdirAll(filepath.Join(dir, stderrName, "in"), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fifos, log := filepath.Join(dir, "fifos"), filepath.Join(dir, "b.log")
			c := newCollectorWith(t, Config{Dir: fifos, Boot: "now"})
			for _, id := range []string{"a", "b", "c"} {
				attach(t, c, id, filepath.Join(dir, id+".log"))
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if err := spoil(filepath.Join(fifos, "b")); err != nil {
				t.Fatal(err)
			}
			c = newCollectorWith(t, Config{Dir: fifos, Boot: "now"})
			_ = c.Recover() // an error tells of b at most
			for _, id := range []string{"a", "c"} {
				if !slices.Contains(c.IDs(), id) {
					t.Errorf("%s is not attached: %v", id, c.IDs())
				}
			}
			_, e, err := c.Attach("b", log)
			if err != nil {
				t.Fatalf("b cannot be attached any more: %v", err)
			}
			put(t, openShim(t, e), "again\n")
			finish(t, c, "b")
			if _, errs := readFile(t, log, ReadOptions{Tail: -1}); errs != "again\n" {
				t.Errorf("log of b: %q", errs)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c = newCollectorWith(t, Config{Dir: fifos, Boot: "another"})
			if err := c.Recover(); len(c.IDs()) > 0 || err != nil && name != "stray file" {
				t.Errorf("after a boot %v are attached: %v", c.IDs(), err)
			}
		})
	}
}

func TestFinishGivesUpWithItsContextAndCanBeRepeated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	o, _ := attach(t, c, "a", path)
	ct := c.containers["a"]
	ct.out.mu.Lock() // a disk that hangs
	put(t, o, "late\n")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Finish(ctx, "a"); err == nil {
		t.Error("Finish did not wait for the last write")
	}
	ct.out.mu.Unlock()
	finish(t, c, "a")
	if got := plain(t, path); got != "stdout F late\n" {
		t.Errorf("got %q", got)
	}
}

func TestDrainingIsNotEndedByTheDeadlineThatBeginsIt(t *testing.T) {
	dir := t.TempDir()
	fifo, path := filepath.Join(dir, stdoutName), filepath.Join(dir, "0.log")
	if err := makeFIFO(fifo); err != nil {
		t.Fatal(err)
	}
	shim := openShim(t, fifo)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r := &reader{out: &logFile{path: path, log: log, keeper: newKeeper(Config{Log: log})}, pool: &batches{}, split: splitter{stream: stdoutName}, log: log, part: splitSize, most: writeSize, stall: stallAfter}
	late := false
	r.now = func() time.Time { // while the first output is processed
		if !late {
			late = true
			put(t, shim, "two\n")
			r.setMode(modeDrain)
		}
		return time.Now()
	}
	if err := r.open(fifo); err != nil {
		t.Fatal(err)
	}
	put(t, shim, "one\n")
	r.mode.Store(modeDrain)
	r.run()
	if got := plain(t, path); got != "stdout F one\nstdout F two\n" {
		t.Errorf("got %q", got)
	}
}
