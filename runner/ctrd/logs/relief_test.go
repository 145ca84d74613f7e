package logs

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hung writes much output to a container whose log file blocks between freeze and thaw.
func hung(t *testing.T, c *Collector, path string, freeze, thaw func()) {
	t.Helper()
	c.stall = 100 * time.Millisecond
	o, e := attach(t, c, "a", path)
	put(t, o, "before\n")
	freeze()
	const n = 20000
	line := strings.Repeat("x", 99) + "\n"
	wrote := make(chan error, 1)
	go func() {
		for i := range n {
			f := o
			if i%2 == 1 {
				f = e
			}
			if _, err := f.WriteString(line); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	select {
	case err := <-wrote:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the container waits for the disk")
	}
	thaw()
	eventually(t, "it is known that lines are lost", func() bool { return c.Lost("a") > 0 })
	put(t, o, "after\n")
	finish(t, c, "a")
}

// checkReported compares the log file, including its report of missing lines, with what was written.
func checkReported(t *testing.T, log string) {
	t.Helper()
	have, missing := 0, 0
	for line := range strings.Lines(stampRE.ReplaceAllString(log, "")) {
		var m int
		if _, err := fmt.Sscanf(line, "stderr F monopod: %d lines of output are missing here: the disk of the log file hung", &m); err == nil {
			missing += m
		} else if strings.Contains(line, "xxx\n") {
			have++
		}
	}
	if have+missing != 20000 || missing < 5000 {
		t.Errorf("%d lines, and %d are reported missing", have, missing)
	}
	if strings.Count(log, "stdout F before\n") != 1 || strings.Count(log, "stdout F after\n") != 1 {
		t.Errorf("it begins with %.100q and ends with %q", log, log[max(0, len(log)-100):])
	}
}

// A pipe without a reader acts like a disk that accepts some output and then hangs.
func TestADiskThatHangsStopsNoContainer(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	read := make(chan struct{})
	hung(t, newCollector(t, filepath.Join(dir, "fifos")), path, func() {}, func() {
		go func() {
			defer close(read)
			for r := bufio.NewReader(end); ; {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == "all is written\n" {
					return
				}
				log.WriteString(line)
			}
		}()
	})
	put(t, end, "all is written\n")
	<-read
	if err := end.Close(); err != nil {
		t.Error(err)
	}
	checkReported(t, log.String())
}
