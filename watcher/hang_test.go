package watcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A call that does not return is waited for once; the path is looked at again when it has returned.
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
	write(t, x, "pod x v1\n")
	write(t, y, "pod y v1\n")
	src := NewFileSource(FileConfig{Path: dir, Load: (&lineLoader{}).load})
	defer src.stopListening()
	src.calls.hanging[y] = true // as when an earlier call has not returned
	set, _ := src.pass()
	if r := reportOn(set, x); r.State != Accepted {
		t.Errorf("x is %+v", r)
	}
	if r := reportOn(set, y); r.State != Unreachable || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "has not answered for 2s") {
		t.Errorf("y is %+v", r)
	}
	must(t, os.Remove(x))
	replace(t, filepath.Join(dir, "w.yaml"), "pod w v1\n")
	if set, _ = src.pass(); reportOn(set, filepath.Join(dir, "w.yaml")).State != Accepted {
		t.Errorf("a new file beside it: %+v", set.Reports)
	}
	delete(src.calls.hanging, y)
	if set, _ = src.pass(); reportOn(set, y).State != Accepted {
		t.Errorf("when it answers, y is %+v", reportOn(set, y))
	}
}
