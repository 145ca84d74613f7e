package volumes

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// maxDepth is how many directories in each other are looked into; each holds a file descriptor meanwhile.
const maxDepth = 1000

// Size is what a directory and all in it take.
type Size struct{ Bytes, Inodes int64 }

// SizeOf returns what a directory and all in it take on its file system, like du: holes take none, a file
// with several names counts once, and what is mounted in it does not count. Whoever writes there may go on: no link is
// followed, and what vanishes is left out. Nothing counts that does not exist. A directory more than 1000 levels down
// counts without what is in it.
func SizeOf(ctx context.Context, dir string) (Size, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Size{}, nil
	}
	if err != nil {
		return Size{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Size{}, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	u := usage{device: st.Dev, size: Size{Bytes: st.Blocks * blockSize, Inodes: 1}, linked: map[uint64]bool{}}
	err = u.add(ctx, f, 1)
	return u.size, err
}

// SizeWithout returns what SizeOf returns, but for the entries of the directory with these names, and for the directory itself.
func SizeWithout(ctx context.Context, dir string, except ...string) (Size, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Size{}, nil
	}
	if err != nil {
		return Size{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Size{}, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return Size{}, err
	}
	u := usage{device: st.Dev, linked: map[uint64]bool{}}
	for _, name := range names {
		if slices.Contains(except, name) {
			continue
		}
		if err := u.addEntry(ctx, f, name, 1); err != nil {
			return u.size, err
		}
	}
	return u.size, nil
}

// blockSize is the unit of Stat_t.Blocks.
const blockSize = 512

type usage struct {
	device uint64
	size   Size
	// linked are the files with several names that were counted.
	linked map[uint64]bool
}

// add counts what is in an open directory.
func (u *usage) add(ctx context.Context, dir *os.File, depth int) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if err := u.addEntry(ctx, dir, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (u *usage) addEntry(ctx context.Context, dir *os.File, name string, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || err == nil && st.Dev != u.device {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: dir.Name() + "/" + name, Err: err}
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir && st.Nlink > 1 {
		if u.linked[st.Ino] {
			return nil
		}
		u.linked[st.Ino] = true
	}
	u.size.Bytes += st.Blocks * blockSize
	u.size.Inodes++
	if !isDir || depth >= maxDepth {
		return nil
	}
	inner, err := openIn(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, beneath|unix.RESOLVE_NO_XDEV)
	switch {
	case err == nil:
		defer inner.Close()
		return u.add(ctx, inner, depth+1)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return nil // it has become something else
	}
	return err
}
