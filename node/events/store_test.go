package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestATornWriteLosesTheTornLineOnly cuts the file after each byte, as a power cut may, and continues from there.
func TestATornWriteLosesTheTornLineOnly(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) {
		for i := range 2 {
			warn(r, "web", "Failed", fmt.Sprint("message ", i))
		}
	})
	whole, err := os.ReadFile(filepath.Join(m.dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		m.dir = filepath.Join(fastDir(t), "events")
		m.cfg.Dir = m.dir
		put(t, m.dir, logFile, whole[:cut])
		lines := bytes.Count(whole[:cut], []byte("\n"))
		var want []string
		for i := range lines {
			want = append(want, fmt.Sprintf("web Failed message %d x1", i))
		}
		m.wants(m.onDisk(), want...)
		s := &store{dir: m.dir, limit: defaultMaxFile}
		if found, err := s.load(); err != nil || len(found) != lines {
			t.Fatalf("cut at %d: %d found, %v", cut, len(found), err)
		}
		next := record{ID: 9, Rev: 9, identity: identity{group: group{Kind: "Pod", Name: "web", Reason: "Next"}, Boot: 1}, Last: time.Hour, Count: 1}
		if err := s.write([]record{next}, nil); err != nil {
			t.Fatal(err)
		}
		s.close()
		m.wants(m.onDisk(), append(want, "web Next  x1")...)
		if t.Failed() {
			t.Fatalf("cut at %d", cut)
		}
	}
}

func TestADamagedLineIsLeftOutWhereverItIs(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) {
		for i := range 3 {
			warn(r, "web", "Failed", fmt.Sprint("message ", i))
		}
	})
	path := filepath.Join(m.dir, logFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	from := len(lines[0])
	for i := range lines[1][:len(lines[1])-1] {
		for _, damage := range []byte{0, 0x80, '\n'} {
			bad := bytes.Clone(whole)
			bad[from+i] = damage
			put(t, m.dir, logFile, bad)
			m.wants(m.onDisk(), "web Failed message 0 x1", "web Failed message 2 x1")
		}
	}
	put(t, m.dir, logFile, bytes.Repeat([]byte{0}, 4096)) // what some file systems leave behind
	m.wants(m.onDisk())
	m.session(func(r *Recorder) { warn(r, "web", "Failed", "after it") })
	m.wants(m.onDisk(), "web Failed after it x1")
}

// TestAPowerCutBetweenTheStepsOfATurnLosesNothing leaves the files as each step does.
func TestAPowerCutBetweenTheStepsOfATurnLosesNothing(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) { warn(r, "web", "Failed", "a"); warn(r, "web", "Failed", "b") })
	log, err := os.ReadFile(filepath.Join(m.dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string][]byte{
		"half a new file":           {logFile: log, newFile: log[:len(log)/2]},
		"a whole new file":          {logFile: log, newFile: log},
		"the log is the old one":    {oldFile: log, newFile: log},
		"both are there":            {oldFile: log, logFile: log},
		"only the old one is there": {oldFile: log},
	} {
		m.dir = filepath.Join(fastDir(t), "events")
		m.cfg.Dir = m.dir
		for file, content := range files {
			put(t, m.dir, file, content)
		}
		m.wants(m.onDisk(), "web Failed a x1", "web Failed b x1")
		m.session(func(r *Recorder) { warn(r, "web", "Failed", "a") })
		m.wants(m.onDisk(), "web Failed b x1", "web Failed a x2")
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestARemovedRecordIsRecreated(t *testing.T) {
	m := newMachine(t)
	m.cfg.WriteAfter = time.Nanosecond
	r := m.start()
	warn(r, "web", "Failed", "a")
	waitFor(t, "a is written", func() bool { return len(m.onDisk()) == 1 })
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	warn(r, "web", "Failed", "b")
	waitFor(t, "b is written", func() bool { return len(m.onDisk()) == 2 })
	m.stop()
	m.wants(m.onDisk(), "web Failed a x1", "web Failed b x1")
}

func TestADiskThatRefusesIsTriedAgainAndNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		if err := os.WriteFile(m.dir, nil, 0o600); err != nil { // no directory can be made there
			t.Fatal(err)
		}
		r := m.start()
		warn(r, "web", "Failed", "a")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		warn(r, "web", "Failed", "a")
		warn(r, "web", "Failed", "b")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := strings.Count(m.log.String(), "kept in memory only"); n != 1 {
			t.Errorf("told %d times:\n%s", n, m.log)
		}
		if err := os.Remove(m.dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lastRetry)
		synctest.Wait()
		m.wants(m.onDisk(), "web Failed a x2", "web Failed b x1")
		if !strings.Contains(m.log.String(), "stored on disk again") {
			t.Errorf("not told that it is over:\n%s", m.log)
		}
		m.stop()
	})
}

// TestAHungDiskBlocksNoCaller has a pipe in place of the log: open for writing blocks until there is a reader.
func TestAHungDiskBlocksNoCaller(t *testing.T) {
	m := newMachine(t)
	m.cfg.WriteAfter = time.Nanosecond
	m.rec = New(m.cfg)
	m.rec.List(Filter{}) // there is no record yet
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(m.dir, logFile)
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.rec.Run(ctx) }()
	warn(m.rec, "web", "Failed", "first")
	waitFor(t, "it hangs", func() bool {
		m.rec.mu.Lock()
		defer m.rec.mu.Unlock()
		return m.rec.fresh.IsZero() // what was new is on its way
	})
	for i := range 1000 {
		warn(m.rec, "web", "Failed", fmt.Sprint(i%3))
	}
	m.wants(m.rec.List(Filter{}), "web Failed first x1", "web Failed 1 x333", "web Failed 2 x333", "web Failed 0 x334")
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	waitFor(t, "it is told that a pipe is no file", func() bool { return strings.Contains(m.log.String(), "kept in memory only") })
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all is written", func() bool { all, err := Read(m.dir, Filter{}); return err == nil && len(all) == 4 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestARecordThatCannotBeReadIsReportedAndSetAside(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(filepath.Join(m.dir, logFile), 0o700); err != nil { // a directory, where root too cannot read lines
		t.Fatal(err)
	}
	m.session(func(r *Recorder) {
		warn(r, "web", "Failed", "a")
		m.wants(r.List(Filter{}), "web Failed a x1")
	})
	if !strings.Contains(m.log.String(), "cannot be read") {
		t.Errorf("log:\n%s", m.log)
	}
	m.wants(m.onDisk(), "web Failed a x1")
	if _, err := os.Stat(filepath.Join(m.dir, logFile+".damaged")); err != nil {
		t.Error(err)
	}
}

// TestAnEventThatCannotBeWrittenKeepsNoOtherOffTheDisk has a clock of a year that JSON has no text for.
func TestAnEventThatCannotBeWrittenKeepsNoOtherOffTheDisk(t *testing.T) {
	m := newMachine(t)
	right := m.clock().Wall
	m.session(func(r *Recorder) {
		m.setClock(right.AddDate(10_000, 0, 0))
		warn(r, "web", "Failed", "a")
		m.setClock(right)
		warn(r, "web", "Failed", "b")
		m.wants(r.List(Filter{}), "web Failed a x1", "web Failed b x1")
	})
	m.wants(m.onDisk(), "web Failed b x1")
	m.session(func(r *Recorder) {
		warn(r, "web", "Failed", "c")
		m.wants(r.List(Filter{}), "web Failed b x1", "web Failed c x1")
	})
}

func TestLinesOfTheFutureOrOfSomebodyElseAreNoEvents(t *testing.T) {
	for _, line := range []string{"", "hello", "00000000 {}", "zzzzzzzz {}", "0000 {}", strings.Repeat("a", 100)} {
		if r, err := parseLine([]byte(line)); !errors.Is(err, errDamaged) {
			t.Errorf("%q: %+v %v", line, r, err)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	r := record{ID: 1, Rev: 2, Count: 3}
	f.Add(bytes.TrimSpace(r.appendLine(nil)))
	f.Add([]byte("00000000 {}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseLine(line)
		if err != nil {
			return
		}
		again := r.appendLine(nil)
		if back, err := parseLine(bytes.TrimSuffix(again, []byte("\n"))); err != nil || back != r {
			t.Errorf("%+v became %+v (%v)", r, back, err)
		}
	})
}

func put(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}
