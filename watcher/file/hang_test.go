package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"monopod/internal/model"
	"monopod/watcher/watchertest"
)

// A call that hangs blocks one scan only. The path is read again once the call has returned.
func TestACallThatHangsIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		release := make(chan struct{})
		var made atomic.Int32
		call := func(path string) error {
			_, err := within(c, path, func() (int, error) {
				made.Add(1)
				<-release
				return 1, nil
			})
			return err
		}
		var hang *hangError
		began := time.Now()
		if err := call("/gone"); !errors.As(err, &hang) || time.Since(began) != longestCall {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		if err := call("/gone"); !errors.As(err, &hang) || time.Since(began) != 0 || made.Load() != 1 {
			t.Errorf("the second time, after %v and %d calls: %v", time.Since(began), made.Load(), err)
		}
		if n, err := within(c, "/other", func() (int, error) { return 2, nil }); n != 2 || err != nil {
			t.Errorf("another path: %d, %v", n, err)
		}
		close(release)
		synctest.Wait()
		if err := call("/gone"); err != nil || made.Load() != 2 {
			t.Errorf("when it has returned, after %d calls: %v", made.Load(), err)
		}
	})
}

// A manifest on a file system that does not answer is reported; the others are followed as before, and it is read when it answers.
func TestAFileThatHangsStopsNoOther(t *testing.T) {
	dir := t.TempDir()
	x, y := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "y.yaml")
	watchertest.Write(t, x, "pod x v1\n")
	watchertest.Write(t, y, "pod y v1\n")
	src := New(Config{Path: dir, Load: (&watchertest.LineLoader{}).Load})
	defer src.stopListening()
	src.calls.hanging[y] = true // as when an earlier call has not returned
	set, _ := src.scanAll()
	if r := watchertest.ReportOn(set, x); r.State != model.InputAccepted {
		t.Errorf("x is %+v", r)
	}
	if r := watchertest.ReportOn(set, y); r.State != model.InputUnreachable || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "has not answered for 2s") {
		t.Errorf("y is %+v", r)
	}
	watchertest.Must(t, os.Remove(x))
	watchertest.Replace(t, filepath.Join(dir, "w.yaml"), "pod w v1\n")
	if set, _ = src.scanAll(); watchertest.ReportOn(set, filepath.Join(dir, "w.yaml")).State != model.InputAccepted {
		t.Errorf("a new file beside it: %+v", set.Inputs)
	}
	delete(src.calls.hanging, y)
	if set, _ = src.scanAll(); watchertest.ReportOn(set, y).State != model.InputAccepted {
		t.Errorf("when it answers, y is %+v", watchertest.ReportOn(set, y))
	}
}
