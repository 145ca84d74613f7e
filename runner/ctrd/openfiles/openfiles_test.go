package openfiles

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onDisk returns a directory that is not in memory.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "testdata-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	dir, err = filepath.Abs(dir)
	check(t, err)
	return dir
}

// ours are the files of this process in a directory, by name.
func ours(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	check(t, Unnamed(t.Context(), os.Getpid(), func(f File) {
		if filepath.Dir(f.Path) == dir {
			found[filepath.Base(f.Path)] = f.Bytes
		}
	}))
	return found
}

func TestFilesThatAreRemovedWhileTheyAreUsedAreFound(t *testing.T) {
	dir := onDisk(t)
	const size = 1 << 20
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		check(t, err)
		t.Cleanup(func() { _ = f.Close() })
		_, err = f.Write(make([]byte, size))
		check(t, err)
		check(t, f.Sync()) // blocks are given to it
		return f
	}
	removed, named, mapped, hole := open("removed"), open("named"), open("mapped"), open("hole")
	memory, err := unix.Mmap(int(mapped.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	check(t, mapped.Close())
	check(t, hole.Truncate(0))
	check(t, hole.Truncate(1<<40))
	for _, name := range []string{"removed", "mapped", "hole"} {
		check(t, os.Remove(filepath.Join(dir, name)))
	}
	want := []string{"mapped", "removed"}
	if os.Geteuid() != 0 {
		want = want[1:] // the kernel shows mapped files to root only
	}
	found := ours(t, dir)
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	for name, n := range found {
		if n < size {
			t.Errorf("%s takes %d bytes", name, n)
		}
	}
	check(t, unix.Munmap(memory))
	check(t, removed.Close())
	check(t, named.Close())
	if found := ours(t, dir); len(found) > 0 {
		t.Errorf("when nobody has them any more: %v", found)
	}
}

func TestFilesInMemoryDoNotCount(t *testing.T) {
	fd, err := unix.MemfdCreate("memory", 0)
	check(t, err)
	defer func() { check(t, unix.Close(fd)) }()
	_, err = unix.Write(fd, make([]byte, 1<<20))
	check(t, err)
	check(t, Unnamed(t.Context(), os.Getpid(), func(f File) {
		if f.Path == "/memfd:memory" {
			t.Errorf("found %+v", f)
		}
	}))
}

func TestOnlyWhatIsNoAnswerIsAnError(t *testing.T) {
	for _, none := range []error{nil, unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM, os.ErrPermission} {
		if err := unlessUnseen(none); err != nil {
			t.Errorf("%v is an error", none)
		}
	}
	for _, is := range []error{unix.EMFILE, unix.ENOMEM, context.Canceled} {
		if err := unlessUnseen(is); !errors.Is(err, is) {
			t.Errorf("%v is %v", is, err)
		}
	}
}

func TestAProcessThatIsGoneHasNone(t *testing.T) {
	visit := func(f File) { t.Errorf("found %+v", f) }
	check(t, Unnamed(t.Context(), 1<<30, visit))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Unnamed(ended, os.Getpid(), visit); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
