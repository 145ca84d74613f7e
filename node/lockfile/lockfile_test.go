package lockfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod/node/lockfile"
)

func acquire(t *testing.T, path string) *lockfile.Lock {
	t.Helper()
	l, err := lockfile.Acquire(t.Context(), path, func() { t.Error("somebody holds it") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestALockIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := acquire(t, path)
	waits, got := make(chan bool), make(chan error, 1)
	go func() {
		l, err := lockfile.Acquire(t.Context(), path, func() { close(waits) })
		if err == nil {
			err = l.Close()
		}
		got <- err
	}()
	<-waits
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
	acquire(t, path)
}

func TestALockOfAFileThatWasTakenAwayIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := acquire(t, path)
	waits, got := make(chan bool, 9), make(chan error, 1)
	go func() {
		l, err := lockfile.Acquire(t.Context(), path, func() { waits <- true })
		if err == nil {
			_, err = os.Stat(path)
			err = errors.Join(err, l.Close())
		}
		got <- err
	}()
	<-waits
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, path) // of a new file
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		t.Fatalf("it has the lock of a file that is not there any more: %v", err)
	case <-time.After(50 * time.Millisecond): // what goes wrong later than that is not seen; nothing right fails
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for ever")
	}
	if len(waits) > 0 {
		t.Error("it was told twice that it waits")
	}
}

func TestWhoWaitsCanBeStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	acquire(t, path)
	ctx, stop := context.WithCancel(t.Context())
	if _, err := lockfile.Acquire(ctx, path, stop); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := lockfile.Acquire(t.Context(), filepath.Join(path, "x"), func() {}); err == nil {
		t.Error("a file in a file can be locked")
	}
}

func TestWhoeverWantsTheLockIsNoticed(t *testing.T) {
	for name, want := range map[string]func(path string) error{
		"opened": func(path string) error {
			f, err := os.Open(path)
			return errors.Join(err, f.Close())
		},
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			l := acquire(t, path)
			type answer struct {
				how string
				err error
			}
			got := make(chan answer, 1)
			go func() {
				how, err := l.Contended(t.Context())
				got <- answer{how, err}
			}()
			for {
				if err := os.Chmod(path, 0o644); err != nil && !os.IsNotExist(err) { // is not meant
					t.Fatal(err)
				}
				if err := want(path); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				select {
				case a := <-got:
					if a.how != name || a.err != nil {
						t.Errorf("%+v", a)
					}
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
}

func TestNobodyWantsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l := acquire(t, path)
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() { _, err := l.Contended(ctx); got <- err }()
	for range 3 {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-got:
		t.Errorf("a change of its mode is taken for that: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	stop()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
