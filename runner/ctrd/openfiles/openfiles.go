// Package openfiles finds files of a process that use disk space without a name, because they were removed while open or mapped.
// It must not know pods or containers.
//
// It has no goroutines.
package openfiles

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// removed is what the kernel appends to the path of a file without a name.
const removed = " (deleted)"

// blockSize is the unit of Stat_t.Blocks.
const blockSize = 512

// ID tells files apart: one that several processes have open is one file.
type ID struct{ Device, Inode uint64 }

// File is a file without a name.
type File struct {
	ID
	// Path is where it was, as the process saw it.
	Path  string
	Bytes int64
}

// Unnamed calls visit for each file without a name that a process has open or mapped, but for those in memory. One that is both
// is shown twice. A process that is gone, or ends meanwhile, has none, and so has one that may not be looked into: what else is
// measured must not depend on it.
func Unnamed(ctx context.Context, pid int, visit func(File)) error {
	dir := fmt.Sprintf("/proc/%d", pid)
	return errors.Join(
		unlessUnseen(descriptors(ctx, filepath.Join(dir, "fd"), visit)),
		unlessUnseen(mappings(ctx, dir, visit)),
	)
}

// unlessUnseen drops the errors of a process that has ended, or that the kernel does not show.
func unlessUnseen(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func descriptors(ctx context.Context, dir string, visit func(File)) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	for ctx.Err() == nil {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			look(filepath.Join(dir, name), visit)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// mappings looks at files that are mapped, each once.
func mappings(ctx context.Context, dir string, visit func(File)) error {
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	last := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() && ctx.Err() == nil {
		text, ok := strings.CutSuffix(lines.Text(), removed)
		if !ok {
			continue
		}
		span, rest, _ := strings.Cut(text, " ")
		_, file, _ := strings.Cut(rest, " ")                   // without the permissions
		if _, file, _ = strings.Cut(file, " "); file == last { // and the offset: device, inode, path
			continue
		}
		last = file
		look(filepath.Join(dir, "map_files", span), visit)
	}
	return errors.Join(ctx.Err(), lines.Err())
}

// look follows a link of the kernel to an open file. It does not open the file, which could block, or have side effects.
func look(link string, visit func(File)) {
	var st unix.Stat_t
	if unix.Stat(link, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 0 || st.Blocks == 0 {
		return
	}
	var on unix.Statfs_t
	if unix.Statfs(link, &on) != nil || uint32(on.Type) == unix.TMPFS_MAGIC || uint32(on.Type) == unix.HUGETLBFS_MAGIC || uint32(on.Type) == unix.RAMFS_MAGIC {
		return
	}
	path, err := os.Readlink(link)
	if err != nil {
		return
	}
	visit(File{ID: ID{Device: st.Dev, Inode: st.Ino}, Path: strings.TrimSuffix(path, removed), Bytes: st.Blocks * blockSize})
}
