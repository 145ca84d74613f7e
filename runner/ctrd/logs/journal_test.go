package logs

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// victim performs the work of a Collector for one container step by step, up to the point where it is killed.
type victim struct {
	t           *testing.T
	fifos, path string
	shim        [2]*os.File
	journal     *journal
	spools      [2]*spool
	log         *os.File
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	dir := t.TempDir()
	v := &victim{t: t, fifos: filepath.Join(dir, "fifos"), path: filepath.Join(dir, "logs", "0.log")}
	c := newCollector(t, v.fifos)
	v.shim[0], v.shim[1] = attach(t, c, "a", v.path)
	v.ok(c.Close())
	v.start()
	return v
}

func (v *victim) ok(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// start opens the files that a Collector opens.
func (v *victim) start() {
	v.t.Helper()
	var err error
	v.journal, err = openJournal(filepath.Join(v.fifos, "a", journalName))
	v.ok(err)
	for i := range v.spools {
		v.spools[i] = &spool{path: v.shim[i].Name() + spoolSuffix, journal: v.journal, stream: i}
		v.ok(v.spools[i].recover())
	}
	v.log, err = os.OpenFile(v.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	v.ok(err)
}

// killed releases everything without changing the disk.
func (v *victim) killed() {
	v.t.Helper()
	v.ok(v.journal.close())
	for _, s := range v.spools {
		if s.f != nil {
			s.f.Close()
		}
	}
	v.log.Close()
}

// take moves s from the FIFO to the spool.
func (v *victim) take(stream int, s string) {
	v.t.Helper()
	put(v.t, v.shim[stream], s)
	buf := make([]byte, readSize)
	n, err := v.spools[stream].take(int(v.shim[stream].Fd()), buf)
	if err != nil || string(buf[:n]) != s {
		v.t.Fatalf("took %q, %v", buf[:n], err)
	}
	v.spools[stream].fed += int64(n)
}

// begin announces the write of entries, which come from the next n bytes of the spool.
func (v *victim) begin(stream, n int, entries string) mark {
	v.t.Helper()
	m := mark{spool: v.spools[stream], upTo: v.spools[stream].start() + int64(n)}
	var st unix.Stat_t
	v.ok(unix.Fstat(int(v.log.Fd()), &st))
	m.begin(&st, len(entries))
	return m
}

func (v *victim) write(s string) {
	v.t.Helper()
	put(v.t, v.log, s)
}

// logged performs all steps for s.
func (v *victim) logged(stream int, s string) {
	v.t.Helper()
	v.take(stream, s)
	entries := ""
	for line := range strings.Lines(s) {
		entries += entryOf(stream, line)
	}
	m := v.begin(stream, len(s), entries)
	v.write(entries)
	m.done()
}

func entryOf(stream int, line string) string {
	return fmt.Sprintf("2026-01-02T03:04:05.000000006Z %s F %s", []string{stdoutName, stderrName}[stream], line)
}

// missing returns the line that reports lines dropped by an earlier process.
func missing(n int) string {
	return fmt.Sprintf("stderr F monopod: %d lines of output are missing here: the log file could not be written\n", n)
}

// next runs a Collector on the files of the victim, and returns the log file after it has collected more from stdout.
func (v *victim) next(more string) string {
	v.t.Helper()
	c := newCollector(v.t, v.fifos)
	v.ok(c.Recover())
	if more != "" {
		put(v.t, v.shim[0], more)
	}
	finish(v.t, c, "a")
	return plain(v.t, v.path)
}

func TestKilledInAnyStepEveryLineIsWrittenOnce(t *testing.T) {
	const lines = "one\ntwo\n"
	entries := entryOf(0, "one\n") + entryOf(0, "two\n")
	const want = "stdout F one\nstdout F two\n"
	tests := []struct {
		name string
		do   func(v *victim)
		want string
	}{
		{"taken from the fifo", func(v *victim) { v.take(0, lines) }, want},
		{"taken in two parts", func(v *victim) { v.take(0, lines[:5]); v.take(0, lines[5:]) }, want},
		{"announced, not written", func(v *victim) {
			v.take(0, lines)
			v.begin(0, len(lines), entries)
		}, want},
		{"half written", func(v *victim) {
			v.take(0, lines)
			v.begin(0, len(lines), entries)
			v.write(entries[:60])
		}, want},
		{"written", func(v *victim) {
			v.take(0, lines)
			v.begin(0, len(lines), entries)
			v.write(entries)
		}, want},
		{"written, start stored", func(v *victim) {
			v.take(0, lines)
			m := v.begin(0, len(lines), entries)
			v.write(entries)
			v.spools[0].progress().start.Store(uint64(m.upTo))
		}, want},
		{"part of it dropped for a full disk, start stored", func(v *victim) {
			v.take(0, lines)
			m := v.begin(0, len(lines), entries)
			v.write(entryOf(0, "one\n"))
			v.spools[0].progress().start.Store(uint64(m.upTo))
		}, "stdout F one\n"},
		{"part of it given up for a full disk, nothing stored", func(v *victim) {
			v.take(0, lines)
			v.begin(0, len(lines), entries)
			v.write(entryOf(0, "one\n"))
			v.journal.next.Store(1)
		}, want},
		{"part of it given up for a full disk", func(v *victim) {
			v.take(0, lines)
			v.begin(0, len(lines), entries)
			v.write(entryOf(0, "one\n"))
			v.journal.next.Store(1)
			v.journal.writing.Store(1 + dropping)
		}, "stdout F one\n" + missing(1)},
		{"a part given up and all told later, not done", func(v *victim) {
			v.take(0, "no\n")
			v.begin(0, 3, "").drop(1)
			v.take(0, lines)
			v.begin(0, len(lines), entries)
			v.write(entries)
		}, want},
		{"a part given up, the line about it half written", func(v *victim) {
			v.take(0, "no\n")
			v.begin(0, 3, "").drop(1)
			v.take(0, lines)
			v.begin(0, len(lines), strings.Repeat("x", 100)+entries)
			v.write("2026-01-02T03:04:05.000000006Z stderr F mono")
		}, missing(1) + want},
		{"done", func(v *victim) { v.logged(0, lines) }, want},
		{"half of the lines done, the others half written", func(v *victim) {
			v.take(0, lines)
			m := v.begin(0, 4, entryOf(0, "one\n"))
			v.write(entryOf(0, "one\n"))
			m.done()
			v.begin(0, 4, entryOf(0, "two\n"))
			v.write(entryOf(0, "two\n")[:3])
		}, want},
		{"one stream taken, the other half written", func(v *victim) {
			v.take(0, lines)
			v.logged(1, "err\n")
			v.take(1, "more\n")
			v.begin(1, 5, entryOf(1, "more\n"))
			v.write(entryOf(1, "more\n")[:40])
		}, ""},
		{"one stream written, the other as well and done before", func(v *victim) {
			v.logged(0, "one\n")
			v.logged(1, "err\n")
			v.take(0, "two\n")
			v.begin(0, 4, entryOf(0, "two\n"))
			v.write(entryOf(0, "two\n"))
		}, "stdout F one\nstderr F err\nstdout F two\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := newVictim(t)
			tt.do(v)
			v.killed()
			got := v.next("")
			if tt.want == "" { // whichever stream comes first
				for _, line := range []string{"stdout F one\nstdout F two\n", "stderr F err\n", "stderr F more\n"} {
					if strings.Count(got, line) != 1 {
						t.Errorf("got %q, want %q once in it", got, line)
					}
				}
				tt.want = got[:len("stdout F one\nstdout F two\nstderr F err\nstderr F more\n")]
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTheBeginningOfALineSurvivesAKillInAnyStepOfItsMove(t *testing.T) {
	tests := []struct {
		name string
		do   func(s *spool)
	}{
		{"before", func(*spool) {}},
		{"copied", func(s *spool) { _, _ = s.f.WriteAt([]byte("tw"), 0) }},
		{"moved", func(s *spool) {
			_, _ = s.f.WriteAt([]byte("tw"), 0)
			s.progress().moved.Store(2)
		}},
		{"end stored", func(s *spool) {
			_, _ = s.f.WriteAt([]byte("tw"), 0)
			s.progress().moved.Store(2)
			s.progress().end.Store(2)
		}},
		{"start stored", func(s *spool) {
			_, _ = s.f.WriteAt([]byte("tw"), 0)
			s.progress().moved.Store(2)
			s.progress().end.Store(2)
			s.progress().start.Store(0)
		}},
		{"done", func(s *spool) { _ = s.shrink([]byte("tw"), 0) }},
		{"done and cut", func(s *spool) { _ = s.shrink([]byte("tw"), 0); _ = s.cut() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := newVictim(t)
			v.take(0, "one\ntw")
			m := v.begin(0, 4, entryOf(0, "one\n"))
			v.write(entryOf(0, "one\n"))
			m.done()
			tt.do(v.spools[0])
			v.killed()
			if got := v.next("o\nthree\n"); got != "stdout F one\nstdout F two\nstdout F three\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestAnEmptySpoolStaysEmptyInAnyStepOfItsReset(t *testing.T) {
	for name, do := range map[string]func(s *spool){
		"end stored": func(s *spool) { s.progress().end.Store(0) },
		"both":       func(s *spool) { _ = s.shrink(nil, 0) },
		"cut":        func(s *spool) { _ = s.shrink(nil, 0); _ = s.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			v.logged(0, "one\n")
			do(v.spools[0])
			v.killed()
			if got := v.next("two\n"); got != "stdout F one\nstdout F two\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestALogFileThatWasMovedIsSettledWhereItIs(t *testing.T) {
	entry := entryOf(0, "two\n")
	tests := []struct {
		name     string
		written  int
		old, new string
	}{
		{"nothing written", 0, "stdout F one\n", "stdout F two\nstdout F three\n"},
		{"half written", len(entry) - 3, "stdout F one\n", "stdout F two\nstdout F three\n"},
		{"written", len(entry), "stdout F one\nstdout F two\n", "stdout F three\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := newVictim(t)
			v.logged(0, "one\n")
			v.take(0, "two\n")
			v.begin(0, 4, entry)
			v.write(entry[:tt.written])
			v.killed()
			v.ok(os.Rename(v.path, v.path+".1"))
			v.ok(os.WriteFile(v.path, nil, 0o600))
			if got, old := v.next("three\n"), plain(t, v.path+".1"); got != tt.new || old != tt.old {
				t.Errorf("got %q and %q, want %q and %q", old, got, tt.old, tt.new)
			}
		})
	}
}

func TestAnotherLogFileOfThatNameIsNotCut(t *testing.T) {
	v := newVictim(t)
	v.take(0, "one\n")
	v.begin(0, 4, entryOf(0, "one\n"))
	v.killed()
	v.ok(os.Rename(v.path, filepath.Join(t.TempDir(), "elsewhere")))
	v.ok(os.WriteFile(v.path, []byte(entryOf(0, "strange\n")[:30]+" stdout F x\n"), 0o600))
	if got := v.next(""); got != "stdout F x\nstdout F one\n" {
		t.Errorf("got %q", got)
	}
	v = newVictim(t)
	v.take(0, "one\n")
	v.begin(0, 4, entryOf(0, "one\n"))
	v.killed()
	v.ok(os.RemoveAll(filepath.Dir(v.path)))
	if got := v.next(""); got != "stdout F one\n" {
		t.Errorf("without directory: got %q", got)
	}
}

func TestDroppedLinesAreNotReplayed(t *testing.T) {
	v := newVictim(t)
	v.take(0, "one\ntw")
	v.killed()
	v.ok(os.RemoveAll(filepath.Dir(v.path)))
	v.ok(os.WriteFile(filepath.Dir(v.path), nil, 0o600)) // in the way of the directory
	c := NewCollector(Config{Dir: v.fifos, Log: slog.New(slog.DiscardHandler)})
	v.ok(c.Recover())
	eventually(t, "the line is dropped", func() bool { return c.Lost("a") == 1 })
	v.ok(c.Close())
	v.ok(os.Remove(filepath.Dir(v.path)))
	if got := v.next("o\n"); got != "stderr F monopod: 2 lines of output are missing here: the log file could not be written\nstdout F o\n" { // "tw" was dropped by Close
		t.Errorf("got %q", got)
	}
}

func TestOutputIsCopiedWithoutJournalWithOneWarning(t *testing.T) {
	for _, name := range []string{journalName, stdoutName + spoolSuffix} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inTheWay := filepath.Join(dir, "fifos", "a", name)
			if err := os.MkdirAll(inTheWay, 0o700); err != nil {
				t.Fatal(err)
			}
			var said syncBuffer
			c := NewCollector(Config{Dir: filepath.Join(dir, "fifos"), Log: slog.New(slog.NewTextHandler(&said, nil))})
			defer func() { _ = c.Close() }()
			c.delay = time.Hour
			path := filepath.Join(dir, "0.log")
			o, _ := attach(t, c, "a", path)
			for i := range 3 {
				put(t, o, fmt.Sprintf("line %d\nhalf ", i))
				eventually(t, "it is written", func() bool { return strings.Contains(content(t, path), fmt.Sprint("line ", i)) })
			}
			if got := plain(t, path); got != "stdout F line 0\nstdout F half line 1\nstdout F half line 2\n" {
				t.Errorf("got %q", got)
			}
			if n := strings.Count(said.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings: %s", n, said.String())
			}
			finish(t, c, "a")
			if got := plain(t, path); !strings.HasSuffix(got, "stdout P half \n") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestAnInvalidJournalIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), journalName)
	for _, b := range [][]byte{{}, []byte("short"), make([]byte, journalSize), bytes.Repeat([]byte{0xff}, journalSize)} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(path)
		if err != nil {
			t.Fatalf("%.8q: %v", b, err)
		}
		j.writing.Store(1)
		if err := j.close(); err != nil {
			t.Error(err)
		}
		if j, err = mapJournal(path); err != nil || j.writing.Load() != 1 {
			t.Errorf("%.8q: opened again: %v", b, err)
		}
		if err := j.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnIdleSpoolHoldsNoMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	c := newCollector(t, filepath.Join(dir, "fifos"))
	c.delay = 20 * time.Millisecond
	o, e := attach(t, c, "a", path)
	used := func(f *os.File) int64 {
		st, err := os.Stat(f.Name() + spoolSuffix)
		if err != nil {
			return -1
		}
		return max(st.Size(), st.Sys().(*syscall.Stat_t).Blocks*512)
	}
	burst := strings.Repeat(strings.Repeat("x", 99)+"\n", 3000)
	put(t, o, burst)
	eventually(t, "the spool is empty", func() bool { return used(o) == 0 })
	put(t, o, burst+"10%\r") // the carriage return waits for what comes after it
	eventually(t, "the rest is written", func() bool { return strings.HasSuffix(content(t, path), " P 10%\n") })
	eventually(t, "the spool is small", func() bool { return used(o) > 0 && used(o) <= 2*spoolIdle })
	if n := used(e); n != -1 {
		t.Errorf("%d bytes for a stream without output", n)
	}
	put(t, o, "\n")
	finish(t, c, "a")
	if got := plain(t, path); !strings.HasSuffix(got, "x\nstdout P 10%\nstdout F \n") {
		t.Errorf("ends in %q", got[len(got)-50:])
	}
}
