package foreign

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// place makes a directory with one file of each kind and links to them, and a file outside.
func place(t *testing.T) (dir *os.File, at func(string) string) {
	t.Helper()
	top := t.TempDir()
	at = func(name string) string { return filepath.Join(top, "in", name) }
	must(t, os.MkdirAll(at("sub"), 0o700), os.WriteFile(filepath.Join(top, "outside"), []byte("secret"), 0o600))
	must(t, os.WriteFile(at("file"), []byte("content"), 0o600), unix.Mkfifo(at("fifo"), 0o600))
	l, err := net.Listen("unix", at("socket"))
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for link, to := range map[string]string{
		"to-file": "file", "to-abs": "/file", "to-fifo": "fifo", "to-outside": "../outside", "to-null": "/dev/null", "to-proc": "/proc/self/status",
		"sub/up": "..", "loop": "loop", "dangling": "nothing",
	} {
		must(t, os.Symlink(to, at(link)))
	}
	dir, err = Dir(filepath.Join(top, "in"))
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return dir, at
}

// opened calls do, and returns how often files below the paths were opened. Finding one does not count.
func opened(t *testing.T, do func(), paths ...string) int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	for _, path := range paths {
		_, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
		must(t, err)
	}
	do()
	events := make([]byte, 4096)
	n, err := unix.Read(fd, events)
	if errors.Is(err, unix.EAGAIN) {
		return 0
	}
	must(t, err)
	return n / unix.SizeofInotifyEvent
}

func TestOnlyRegularFilesInsideAreOpened(t *testing.T) {
	dir, at := place(t)
	for _, c := range []struct {
		name  string
		links Links
		want  error
	}{
		{"file", Within, nil},
		{"to-file", Within, nil},
		{"sub/up/file", Within, nil},
		{"to-abs", Within, ErrLeadsOut},
		{"to-outside", Within, ErrLeadsOut},
		{"../outside", Within, ErrLeadsOut},
		{"to-null", Within, ErrLeadsOut},
		{"dangling", Within, fs.ErrNotExist},
		{"loop", Within, unix.ELOOP},
		{"fifo", Within, ErrSpecial},
		{"to-fifo", Within, ErrSpecial},
		{"socket", Within, ErrSpecial},
		{"sub", Within, ErrSpecial},
		{"to-abs", Rooted, nil},
		{"/../file", Rooted, nil},
		{"to-outside", Rooted, fs.ErrNotExist},
		{"to-null", Rooted, fs.ErrNotExist},
		{"file", None, nil},
		{"to-file", None, unix.ELOOP},
		{"sub/up/file", None, unix.ELOOP},
		{"to-file", Itself, ErrSpecial},
		{"sub/up/file", Itself, unix.ELOOP},
		{"file", Within | OneDevice, nil},
	} {
		var data []byte
		var err error
		found := opened(t, func() {
			var f *os.File
			if f, err = Find(dir, c.name, c.links); err == nil {
				data, err = Read(f, 7)
				_ = f.Close()
			}
		}, at("fifo"), "/dev/null")
		if !errors.Is(err, c.want) || err == nil && string(data) != "content" || found > 0 {
			t.Errorf("%s (%#x): %q, %v; want %v; %d special files were opened", c.name, c.links, data, err, c.want, found)
		}
	}
}

func TestTheLookDecidesWhatIsOpened(t *testing.T) {
	dir, at := place(t)
	f, err := Find(dir, "file", None)
	must(t, err)
	defer f.Close()
	must(t, os.Rename(at("fifo"), at("file"))) // in its place
	if data, err := Read(f, 7); err != nil || string(data) != "content" {
		t.Errorf("%q, %v", data, err)
	}
	must(t, Chmod(f, 0o640), Chgrp(f, os.Getgid()))
	if info, err := f.Stat(); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(at("file")); err != nil || info.Mode() != 0o600|fs.ModeNamedPipe {
		t.Errorf("what took its name is %v, %v", info.Mode(), err)
	}
	if _, err := Read(f, 6); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file that is too large: %v", err)
	}
	if _, err := List(f); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file as a directory: %v", err)
	}
	proc, err := At("/proc/self/status", 0)
	must(t, err)
	defer proc.Close()
	if _, err := Read(proc, 7); !errors.Is(err, ErrKernel) {
		t.Errorf("a file of the kernel: %v", err)
	}
	if _, err := Create(dir, "to-outside", 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file was created behind a link: %v", err)
	}
}

func TestAWalkVisitsAllFilesAndOpensDirectoriesAlone(t *testing.T) {
	dir, at := place(t)
	var names []string
	found := opened(t, func() {
		must(t, Walk(t.Context(), dir, func(name string, f *os.File) error {
			info, err := f.Stat()
			names = append(names, name+" "+info.Mode().Type().String()[:1])
			return err
		}))
	}, at("fifo"), at("file"), "/dev/null")
	last := names[len(names)-1]
	slices.Sort(names)
	want := ". d|dangling L|fifo p|file -|loop L|socket S|sub d|sub/up L|to-abs L|to-fifo L|to-file L|to-null L|to-outside L|to-proc L"
	if got := strings.Join(names, "|"); got != want || last != ". d" || found > 0 {
		t.Errorf("got  %s (last %s)\nwant %s; %d files were opened", got, last, want, found)
	}
}

// TestWhatIsSwappedDuringAWalkDoesNotBlockIt: the names of the directory have been read when the first of them is visited.
func TestWhatIsSwappedDuringAWalkDoesNotBlockIt(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"a", "b"} {
		must(t, os.MkdirAll(filepath.Join(top, name, "inner"), 0o700))
	}
	dir, err := Dir(top)
	must(t, err)
	defer dir.Close()
	var names []string
	other := map[string]string{"a/inner": "b", "b/inner": "a"}
	must(t, Walk(t.Context(), dir, func(name string, _ *os.File) error {
		names = append(names, name)
		if to := filepath.Join(top, other[name]); other[name] != "" {
			must(t, os.RemoveAll(to), unix.Mkfifo(to, 0o600))
		}
		return nil
	}))
	if len(names) != 4 || names[3] != "." || strings.Contains(names[2], "/") { // the other one is visited, and not entered
		t.Errorf("%q", names)
	}
}

func TestAWalkEnds(t *testing.T) {
	dir, _ := place(t)
	ctx, cancel := context.WithCancel(t.Context())
	visits := 0
	err := Walk(ctx, dir, func(string, *os.File) error {
		visits++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || visits != 1 {
		t.Errorf("%d visits after the end of the context, %v", visits, err)
	}
	top := t.TempDir()
	deep, err := Dir(top)
	must(t, err)
	defer deep.Close()
	at, err := List(deep)
	must(t, err)
	for range MaxDepth {
		must(t, unix.Mkdirat(int(at.Fd()), "d", 0o700))
		next, err := FindDir(at, "d", None)
		must(t, err, at.Close())
		at = next
	}
	must(t, at.Close())
	if err := Walk(t.Context(), deep, func(string, *os.File) error { return nil }); err == nil || !strings.Contains(err.Error(), "nested more than 1000 deep") {
		t.Errorf("%v", err)
	}
}
