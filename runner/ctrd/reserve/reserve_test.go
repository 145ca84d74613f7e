package reserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// reserveOn returns a reserve on a disk with so many free bytes.
func reserveOn(t *testing.T, free *atomic.Int64) *Reserve {
	t.Helper()
	r := New(t.TempDir(), slog.New(slog.DiscardHandler))
	r.free = func() (int64, error) { return free.Load(), nil }
	return r
}

// blocks returns the disk usage of a file, and its size.
func blocks(t *testing.T, path string) (taken, size int64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512, st.Size
}

func TestTheReserveIsTakenWhenThereIsRoomAndGivenToTheDatabasesWhenTheDiskIsFull(t *testing.T) {
	var free atomic.Int64
	r := reserveOn(t, &free)
	free.Store(reserveRoom - 1)
	if made, err := r.make(); made || err != nil {
		t.Fatalf("without room: %v, %v", made, err)
	}
	free.Store(reserveRoom)
	for range 2 {
		if made, err := r.make(); !made || err != nil {
			t.Fatalf("with room: %v, %v", made, err)
		}
		if taken, size := blocks(t, r.Path); taken < reserveSize || size != reserveSize {
			t.Fatalf("the reserve has %d bytes and takes %d", size, taken)
		}
	}
	// A database file is longer than its content, and has holes.
	db := filepath.Join(filepath.Dir(r.Path), "containerd", "io.containerd.metadata.v1.bolt", "meta.db")
	if err := errors.Join(os.MkdirAll(filepath.Dir(db), 0o700), os.WriteFile(db, []byte("content"), 0o600), os.Truncate(db, 100_000)); err != nil {
		t.Fatal(err)
	}
	was, _ := blocks(t, db)

	full := fmt.Errorf("remove image: %w", &fs.PathError{Op: "write", Path: db, Err: unix.ENOSPC})
	if r.Spend(full) {
		t.Error("it was given up while there is room: what was full is another disk")
	}
	free.Store(reserveSize)
	if r.Spend(errors.New("remove image: gc failed")) {
		t.Error("it was given up for another failure of the collector")
	}
	free.Store(0)
	for _, err := range []error{nil, errors.New("input/output error")} {
		if r.Spend(err) {
			t.Errorf("it was given up for %v", err)
		}
	}
	if !r.Spend(errors.New(full.Error())) { // containerd's are texts
		t.Error("it was not given up when the disk is full")
	}
	if _, err := os.Stat(r.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if is, size := blocks(t, db); is-was < reserveShare || is-was > reserveShare+reserveStep || size != 100_000 {
		t.Errorf("the database has %d bytes and takes %d instead of %d", size, is, was)
	}
	if text, err := os.ReadFile(db); err != nil || string(text[:7]) != "content" {
		t.Errorf("the database is another one: %v", err)
	}
	if r.Spend(full) {
		t.Error("it was given up twice")
	}
	for why, left := range map[error]int64{unix.EDQUOT: reserveRoom, errors.New("remove image: gc failed"): 0} {
		free.Store(reserveRoom)
		made, err := r.make()
		if free.Store(left); !made || err != nil || !r.Spend(why) {
			t.Errorf("made again: %v, %v, or not given up for %v", made, err, why)
		}
	}
}

func TestTheReserveIsMadeAgainWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		r := reserveOn(t, &free)
		ctx, cancel := context.WithCancel(t.Context())
		var g sync.WaitGroup
		g.Go(func() { r.Keep(ctx) })
		there := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if _, err := os.Stat(r.Path); (err == nil) != want {
				t.Errorf("want %v: %v", want, err)
			}
		}
		there(time.Hour, false)
		free.Store(reserveRoom)
		there(reserveEvery, true)
		free.Store(0)
		if !r.Spend(unix.ENOSPC) {
			t.Error("not given up")
		}
		there(time.Hour, false)
		free.Store(reserveRoom)
		there(reserveEvery, true)
		cancel()
		g.Wait()
	})
}

func TestWhatMakesRoomIsTriedAgainWithTheReserve(t *testing.T) {
	var free atomic.Int64
	free.Store(reserveRoom)
	r := reserveOn(t, &free)
	if made, err := r.make(); !made || err != nil {
		t.Fatal(made, err)
	}
	free.Store(0)
	tries := 0
	for range 2 {
		err := r.MakingRoom(func() error {
			if tries++; tries == 2 {
				return nil
			}
			return unix.ENOSPC
		})
		if (err == nil) != (tries == 2) {
			t.Errorf("after %d tries: %v", tries, err)
		}
	}
	if tries != 3 {
		t.Errorf("%d tries", tries)
	}
	// An external containerd has none.
	var other *Reserve // of another containerd
	other.Keep(t.Context())
	if err := other.MakingRoom(func() error { return unix.ENOSPC }); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("without a reserve: %v", err)
	}
}
