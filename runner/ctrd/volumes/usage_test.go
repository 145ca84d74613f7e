package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSizeWithoutLeavesEntriesOut(t *testing.T) {
	dir, _ := tree(t)
	check(t, os.WriteFile(filepath.Join(dir, "counts"), make([]byte, 1<<20), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "a", "b", "left-out"), make([]byte, 4<<20), 0o600))
	for name, c := range map[string]struct {
		except []string
		want   Size
	}{
		"but for a directory":       {[]string{"a"}, Size{Bytes: 1 << 20, Inodes: 1}},
		"but for all":               {[]string{"a", "counts"}, Size{}},
		"only entries of dir count": {[]string{"a", "left-out"}, Size{Bytes: 1 << 20, Inodes: 1}},
	} {
		if got, err := SizeWithout(t.Context(), dir, c.except...); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if got, err := SizeWithout(t.Context(), dir); err != nil || got.Bytes < 5<<20 || got.Inodes != 4 {
		t.Errorf("all of it: %v, %v", got, err)
	}
	if got, err := SizeWithout(t.Context(), filepath.Join(dir, "none")); err != nil || got != (Size{}) {
		t.Errorf("what does not exist: %v, %v", got, err)
	}
}

func TestSizeOfIsThatOfDu(t *testing.T) {
	dir, outside := tree(t)
	var inodes int64
	measure := func() int64 {
		t.Helper()
		size, err := SizeOf(t.Context(), dir)
		check(t, err)
		inodes = size.Inodes
		return size.Bytes
	}
	write := func(path string, size int) {
		t.Helper()
		check(t, os.WriteFile(path, make([]byte, size), 0o600))
	}
	empty := measure()
	atFirst := inodes
	const mi = 1 << 20
	grown := func(what string, want int64) {
		t.Helper()
		if got := measure() - empty; got < want || got > want+64<<10 {
			t.Errorf("%s: %d more bytes, want %d", what, got, want)
		}
	}
	write(filepath.Join(dir, "file"), mi)
	grown("a file", mi)
	write(filepath.Join(dir, "a", "b", "file"), mi)
	grown("a file below", 2*mi)
	check(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "a", "link")))
	grown("another name", 2*mi)
	check(t, os.Truncate(filepath.Join(dir, "a", "b", "file"), 1<<40))
	grown("a hole", 2*mi)
	write(filepath.Join(outside, "large"), 4*mi)
	check(t, os.Symlink(outside, filepath.Join(dir, "out")))
	check(t, os.Symlink(filepath.Join(outside, "large"), filepath.Join(dir, "large")))
	grown("links that lead out", 2*mi)
	check(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	grown("a FIFO", 2*mi)
	if inodes-atFirst != 5 {
		t.Errorf("%d more inodes for two files, two links and a FIFO", inodes-atFirst)
	}
	if n, err := SizeOf(t.Context(), filepath.Join(dir, "none")); n != (Size{}) || err != nil {
		t.Errorf("what does not exist: %v, %v", n, err)
	}
	if _, err := SizeOf(t.Context(), filepath.Join(dir, "out")); err == nil {
		t.Error("a link is followed")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := SizeOf(ended, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

// TestDeepDirectoriesTakeNoMoreDescriptors has deeply nested directories, which must not exhaust the agent's descriptors.
func TestDeepDirectoriesTakeNoMoreDescriptors(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(t, err)
	for range maxDepth + 200 {
		check(t, unix.Mkdirat(fd, "d", 0o700))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(t, err)
		check(t, unix.Close(fd))
		fd = next
	}
	check(t, unix.Close(fd))
	n, err := SizeOf(t.Context(), dir)
	if err != nil {
		t.Errorf("%v, %v", n, err)
	}
	check(t, os.RemoveAll(dir))
}
