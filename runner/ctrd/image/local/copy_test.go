package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/dirtest"
)

// unlimited returns a copier for a disk of any size.
func unlimited() *copier { return &copier{disk: func(int64) error { return nil }} }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// written returns the size of all regular files of a tree.
func written(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	check(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		bytes += stat(info).Blocks * 512
		return err
	}))
	return bytes
}

func TestCopiesAreExact(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	at := func(elem ...string) string { return filepath.Join(append([]string{from}, elem...)...) }
	check(t, os.MkdirAll(at("sub", "empty"), 0o700))
	check(t, os.WriteFile(at("sub", "file"), []byte("content"), 0o640))
	check(t, os.Chmod(at("sub", "file"), 0o640|fs.ModeSetuid))
	check(t, os.Link(at("sub", "file"), at("again")))
	check(t, os.Symlink("/else", at("link")))
	check(t, unix.Mkfifo(at("fifo"), 0o600))
	sparse, err := os.Create(at("sparse"))
	check(t, err)
	_, err = sparse.WriteAt([]byte("end"), 64<<20)
	check(t, errors.Join(err, sparse.Truncate(128<<20), sparse.Close()))
	old := time.Unix(1_000_000_000, 0)
	check(t, os.Chtimes(at("sub", "file"), old, old))
	check(t, os.Chmod(at("sub"), 0o750))
	check(t, os.Chtimes(at("sub"), old, old))
	check(t, unlimited().copyOut(t.Context(), from, "/", to))
	for _, name := range []string{".", "sub", "sub/empty", "sub/file", "again", "link", "fifo", "sparse"} {
		want, err := os.Lstat(filepath.Join(from, name))
		check(t, err)
		got, err := os.Lstat(filepath.Join(to, name))
		check(t, err)
		if got.Mode() != want.Mode() || !got.IsDir() && got.Size() != want.Size() || !got.ModTime().Equal(want.ModTime()) || stat(got).Nlink != stat(want).Nlink {
			t.Errorf("%s: %v %d %v, want %v %d %v", name, got.Mode(), got.Size(), got.ModTime(), want.Mode(), want.Size(), want.ModTime())
		}
	}
	if text, err := os.ReadFile(filepath.Join(to, "again")); string(text) != "content" {
		t.Errorf("%q, %v", text, err)
	}
	if target, err := os.Readlink(filepath.Join(to, "link")); target != "/else" {
		t.Errorf("%q, %v", target, err)
	}
	f, err := os.Open(filepath.Join(to, "sparse"))
	check(t, err)
	defer f.Close()
	end := make([]byte, 3)
	if _, err := f.ReadAt(end, 64<<20); string(end) != "end" {
		t.Errorf("%q, %v", end, err)
	}
	if n := written(t, to); n > 2*maxPiece {
		t.Errorf("the holes take %d bytes", n)
	}
}

// One image of some megabytes may name the same directory many times, with files of any size.
func TestCopiesAreLimited(t *testing.T) {
	from := t.TempDir()
	check(t, os.WriteFile(filepath.Join(from, "big"), make([]byte, 3*maxPiece), 0o600))
	full := errors.New("full")
	ctx, cancel := context.WithCancel(t.Context())
	for _, tt := range []struct {
		name string
		c    copier
		want string
		most int64
	}{
		{"within a limit", copier{limit: 3*maxPiece + block}, "", 3 * maxPiece},
		{"more than the limit", copier{limit: 2 * maxPiece}, "more ephemeral storage than the limit, which is 8Mi", 2 * maxPiece},
		{"a file that the disk has no room for", copier{disk: func(n int64) error {
			if n > 2*maxPiece {
				return full
			}
			return nil
		}}, "full", 0},
		{"the pod is gone after a piece", copier{disk: func(n int64) error {
			if n == maxPiece {
				cancel()
			}
			return nil
		}}, "context canceled", maxPiece},
		{"the pod is gone before", unlimitedValue(), "context canceled", 0},
	} {
		to := t.TempDir()
		if tt.c.disk == nil {
			tt.c.disk = unlimited().disk
		}
		err := tt.c.copyOut(ctx, from, "/", to)
		if got := errorText(err); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if n := written(t, to); n > tt.most {
			t.Errorf("%s: %d bytes are written", tt.name, n)
		}
	}
	c := &copier{limit: 4 * maxPiece, disk: unlimited().disk}
	check(t, c.copyOut(t.Context(), from, "/", t.TempDir()))
	if err := c.copyOut(t.Context(), from, "/", t.TempDir()); err == nil {
		t.Error("a limit holds for each copy alone")
	}
}

func unlimitedValue() copier { return *unlimited() }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestManyFilesCount(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		check(t, os.Mkdir(filepath.Join(from, name), 0o700))
		dirtest.Write(t, filepath.Join(from, name, "f"), 1)
	}
	c := &copier{limit: 6 * block, disk: unlimited().disk}
	check(t, c.copyOut(t.Context(), from, "/", t.TempDir()))
	c = &copier{limit: 6*block - 1, disk: unlimited().disk}
	if err := c.copyOut(t.Context(), from, "/", t.TempDir()); err == nil {
		t.Error("small files and directories do not count")
	}
}

// A disk that is too full for the next file refuses it before anything is written.
func TestCopiesWatchTheDisk(t *testing.T) {
	d := bounded.Disk{Dir: t.TempDir(), Keep: func(size bounded.Room) bounded.Room { return bounded.Room{Bytes: size.Bytes} }}
	if err := d.Guard()(1 << 60); !errors.Is(err, bounded.ErrFull) {
		t.Errorf("an exabyte: %v", err)
	}
	if err := (bounded.Disk{}).Guard()(1 << 60); err != nil {
		t.Errorf("a disk that is not watched: %v", err)
	}
}
