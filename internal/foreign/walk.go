package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// MaxDepth is how deep Walk goes. Each level holds a file descriptor.
const MaxDepth = 1000

// Walk calls do for each file below a directory, then for the directory itself, which was found by Dir. Links are not followed, files that
// vanish meanwhile are left out, and nothing is opened but directories. The name is relative; the file is closed after the call.
func Walk(ctx context.Context, dir *os.File, do func(name string, place *os.File) error) error {
	w := walk{ctx: ctx, do: do}
	if err := w.below(dir, "", 0); err != nil {
		return err
	}
	return do(".", dir)
}

type walk struct {
	// ctx: it lives as long as one walk.
	ctx context.Context
	do  func(name string, place *os.File) error
}

// below visits the content of a directory.
func (w *walk) below(place *os.File, name string, depth int) error {
	if depth == MaxDepth {
		return fmt.Errorf("%s: directories are nested more than %d deep", path.Dir(name), MaxDepth)
	}
	dir, err := List(place)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for {
		names, err := dir.Readdirnames(512)
		for _, base := range names {
			if err := w.entry(dir, base, path.Join(name, base), depth); err != nil {
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

// entry visits one name of a directory, unless it has vanished.
func (w *walk) entry(dir *os.File, base, name string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	place, err := Find(dir, base, Itself)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = place.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := w.below(place, name, depth+1); err != nil {
			return err
		}
	}
	return w.do(name, place)
}
