package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/continuity/sysx"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// block is the least space that a file or a directory takes on most file systems.
	block = 4 << 10
	// maxPiece is how much of a file is copied between two checks.
	maxPiece = 4 << 20
	// maxLinks is the number of files with several names that are remembered, each with a path. Further ones are copied once for each name.
	maxLinks = 100_000
)

// copier copies trees of files, and can be stopped at every file and every piece of one: a small archive may unpack to any amount.
type copier struct {
	// limit is how much all copies may take together; 0: any. used is what they take.
	limit, used int64
	// disk reports why a file of so many bytes must not be written.
	disk func(bytes int64) error
	// links are the copies of files with several names, by inode.
	links map[uint64]string
}

// take counts bytes that are about to be written.
func (c *copier) take(bytes int64) error {
	bytes = (bytes + block - 1) / block * block
	if c.used += bytes; c.limit > 0 && c.used > c.limit {
		return fmt.Errorf("it needs more ephemeral storage than the limit, which is %s", resource.NewQuantity(c.limit, resource.BinarySI))
	}
	return c.disk(bytes)
}

// dir copies the content of a directory, and its owner, mode, times and extended attributes, to an existing one.
func (c *copier) dir(ctx context.Context, from, to string) error {
	d, err := os.OpenFile(from, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return err
	}
	for {
		entries, err := d.ReadDir(512)
		for _, e := range entries {
			if err := c.entry(ctx, filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return describe(info, from, to)
		}
		if err != nil {
			return err
		}
	}
}

// entry copies a file or a directory of any kind.
func (c *copier) entry(ctx context.Context, from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if first := c.first(info, to); first != to {
		return os.Link(first, to)
	}
	if info.Mode().IsRegular() {
		err = c.disk(min(info.Size(), stat(info).Blocks*512))
	} else {
		err = c.take(block)
	}
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case 0:
		err = c.file(ctx, from, to)
	case fs.ModeDir:
		if err = os.Mkdir(to, 0o700); err == nil {
			return c.dir(ctx, from, to)
		}
	case fs.ModeSymlink:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	default:
		st := stat(info)
		err = unix.Mknod(to, st.Mode, int(st.Rdev))
	}
	if err != nil {
		return err
	}
	return describe(info, from, to)
}

// first returns the copy of a file that was copied under another name already, or else to.
func (c *copier) first(info fs.FileInfo, to string) string {
	st := stat(info)
	if st.Nlink < 2 || info.IsDir() {
		return to
	}
	if path, ok := c.links[st.Ino]; ok {
		return path
	}
	if c.links == nil {
		c.links = map[uint64]string{}
	}
	if len(c.links) < maxLinks {
		c.links[st.Ino] = to
	}
	return to
}

// file copies the content of a file, without its larger holes.
func (c *copier) file(ctx context.Context, from, to string) (err error) {
	src, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if at, err = dataAfter(src, at, info.Size()); err != nil || at == info.Size() {
			return errors.Join(err, dst.Truncate(at))
		}
		piece := min(maxPiece, info.Size()-at)
		if err := c.take(piece); err != nil {
			return err
		}
		if _, err := dst.Seek(at, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(dst, src, piece); err != nil {
			return err
		}
		at += piece
	}
}

// dataAfter moves the offset of a file to the next data at or after a position, and returns it, or the size if only a hole follows.
func dataAfter(f *os.File, at, size int64) (int64, error) {
	next, err := f.Seek(at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP): // the file system does not know its holes
		return f.Seek(at, io.SeekStart)
	}
	return min(next, size), err
}

// describe sets owner, mode, extended attributes and times to those of the original, in an order in which none undoes another.
func describe(info fs.FileInfo, from, to string) error {
	st := stat(info)
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		if err := os.Chmod(to, info.Mode()); err != nil {
			return err
		}
	}
	if err := attributes(from, to); err != nil {
		return err
	}
	times := []unix.Timespec{unix.Timespec(st.Atim), unix.Timespec(st.Mtim)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW)
}

// attributes copies extended attributes.
func attributes(from, to string) error {
	names, err := sysx.LListxattr(from)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list extended attributes: %w", err)
	}
	for _, name := range names {
		value, err := sysx.LGetxattr(from, name)
		if err == nil {
			err = sysx.LSetxattr(to, name, value, 0)
		}
		if err != nil {
			return fmt.Errorf("extended attribute %s: %w", name, err)
		}
	}
	return nil
}

// stat returns what the system says about a file.
func stat(info fs.FileInfo) *syscall.Stat_t {
	st, _ := info.Sys().(*syscall.Stat_t)
	return st
}
