package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
)

// Pack writes a file, or a directory with everything below it, as a tar stream under that name. Skipped files are reported to warn, which
// may be nil. It does not follow links, although from may have been reached through one.
func Pack(ctx context.Context, to io.Writer, from *os.File, name string, warn func(string)) error {
	p := &packer{ctx: ctx, tar: tar.NewWriter(to), buf: make([]byte, chunk), warnings: warnings{tell: warn}}
	defer p.end()
	top, err := p.add(from, name, 0)
	if err != nil {
		return err
	}
	if !top {
		return fmt.Errorf("%s: neither a regular file nor a directory that can be copied", from.Name())
	}
	return p.tar.Close()
}

type packer struct {
	// ctx: it lives as long as one call of Pack.
	ctx context.Context
	tar *tar.Writer
	buf []byte
	warnings
}

// add adds the file that f, possibly opened with O_PATH, stands for. Reports whether it was added.
func (p *packer) add(f *os.File, name string, depth int) (bool, error) {
	if err := p.ctx.Err(); err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o7777), ModTime: time.Unix(st.Mtim.Unix())}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFREG || kind == unix.S_IFDIR {
		if made, err := foreign.KernelMade(f); made || err != nil {
			p.addf("%s was skipped: it is a virtual file of the kernel", name)
			return false, err
		}
	}
	switch kind {
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
		return true, p.file(f, h)
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return true, p.directory(f, h, name, depth)
	case unix.S_IFLNK:
		target, err := linkOf(f)
		if err != nil {
			return false, &fs.PathError{Op: "readlink", Path: name, Err: err}
		}
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, target, 0o777
		return true, p.tar.WriteHeader(h)
	}
	p.addf("%s was skipped: it is neither a file nor a directory", name)
	return false, nil
}

// linkOf is where a symbolic link leads.
func linkOf(f *os.File) (string, error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", b)
	return string(b[:max(n, 0)]), err
}

// file adds as much of a file as it had when it was looked at.
func (p *packer) file(place *os.File, h *tar.Header) error {
	f, _, err := foreign.Open(place, unix.O_RDONLY)
	if err != nil {
		return pathError(err, h.Name)
	}
	defer f.Close()
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.tar}, &reading{p.ctx, io.LimitReader(f, h.Size)}, p.buf)
	if err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	if n == h.Size {
		return nil
	}
	p.addf("%s became shorter during the copy; the rest is filled with zeros", h.Name)
	clear(p.buf)
	for n < h.Size {
		k, err := p.tar.Write(p.buf[:min(h.Size-n, int64(len(p.buf)))])
		if err = errors.Join(err, p.ctx.Err()); err != nil {
			return err
		}
		n += int64(k)
	}
	return nil
}

// reading is a reader that ends with a context.
type reading struct {
	// ctx: it lives as long as one copy.
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r *reading) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// directory adds one and all in it.
func (p *packer) directory(place *os.File, h *tar.Header, name string, depth int) error {
	if depth == maxDepth {
		return fmt.Errorf("%s: directories are nested more than %d deep", name, maxDepth)
	}
	dir, err := foreign.List(place)
	if err != nil {
		return pathError(err, name)
	}
	defer dir.Close()
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	for {
		names, err := dir.Readdirnames(100)
		for _, n := range names {
			if err := p.entry(dir, n, path.Join(name, n), depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return pathError(err, name)
		}
	}
}

// entry adds what has a name in a directory, unless it is gone.
func (p *packer) entry(dir *os.File, base, name string, depth int) error {
	f, err := foreign.Find(dir, base, foreign.Itself)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return pathError(err, name)
	}
	defer f.Close()
	_, err = p.add(f, name, depth+1)
	return err
}
