package volumes

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
)

// maxDepth is the maximum depth of directories; each level holds a file descriptor.
const maxDepth = 1000

// Size is the disk usage of a directory tree.
type Size struct{ Bytes, Inodes int64 }

// SizeOf returns the disk usage of a directory tree on its file system, like du: without holes and mounts, and files with several
// names count once. The tree may change concurrently: links are not followed, and vanished files do not count. A missing directory
// has size zero. The content of a directory more than 1000 levels down does not count.
func SizeOf(ctx context.Context, dir string) (Size, error) {
	own, below, err := measure(ctx, dir, nil)
	return Size{Bytes: own.Bytes + below.Bytes, Inodes: own.Inodes + below.Inodes}, err
}

// SizeWithout is SizeOf without the directory itself and the named entries of it.
func SizeWithout(ctx context.Context, dir string, except ...string) (Size, error) {
	_, below, err := measure(ctx, dir, except)
	return below, err
}

// measure returns the usage of a directory, and of all below it except the named entries.
func measure(ctx context.Context, dir string, except []string) (own, below Size, err error) {
	place, err := foreign.At(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return Size{}, Size{}, nil
	}
	if err != nil {
		return Size{}, Size{}, err
	}
	defer place.Close()
	f, err := foreign.List(place)
	if err != nil {
		return Size{}, Size{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Size{}, Size{}, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	u := usage{device: st.Dev, except: except, linked: map[uint64]bool{}}
	err = u.add(ctx, f, 1)
	return Size{Bytes: st.Blocks * blockSize, Inodes: 1}, u.size, err
}

// blockSize is the unit of Stat_t.Blocks.
const blockSize = 512

type usage struct {
	device uint64
	size   Size
	// except are entries of the top directory that do not count.
	except []string
	// linked are the files with several names that have been counted.
	linked map[uint64]bool
}

// add counts the content of an open directory.
func (u *usage) add(ctx context.Context, dir *os.File, depth int) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if depth == 1 && slices.Contains(u.except, name) {
				continue
			}
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
	inner, err := openDir(dir, name)
	switch {
	case err == nil:
		defer inner.Close()
		return u.add(ctx, inner, depth+1)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return nil // it is no longer a directory
	}
	return err
}

// openDir opens a directory in another, on the same file system.
func openDir(dir *os.File, name string) (*os.File, error) {
	place, err := foreign.FindDir(dir, name, foreign.None|foreign.OneDevice)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	return foreign.List(place)
}
