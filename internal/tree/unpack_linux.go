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
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
)

// Options of Unpack.
type Options struct {
	// From is what the tree is called in the stream, To what it is called from now on. Without From, all names stay as they are.
	From, To string
	// Careful leaves out links that do not stay in their directory, and leaves the modes of files to the umask: for trees from places
	// that are not trusted, in places that others will use.
	Careful bool
	// Warn is called for each skipped entry; it may be nil.
	Warn func(string)
}

// Unpack extracts a stream into a directory and never touches anything outside. Existing files are rewritten in place. Existing links are
// replaced, except those within the directory that lead to directories of it. After an error a part of the tree exists.
func Unpack(ctx context.Context, from io.Reader, into *os.File, o Options) error {
	u := &unpacker{ctx: ctx, into: into, o: o, buf: make([]byte, chunk), warnings: warnings{tell: o.Warn}}
	defer u.end()
	defer u.leave()
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return u.finish()
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		name, err := u.place(h.Name)
		if err != nil {
			return err
		}
		if err := u.add(r, h, name); err != nil {
			return fmt.Errorf("%s: %w", h.Name, plain(err))
		}
	}
}

// plain strips the path from an error that is reported with one.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}

type unpacker struct {
	// ctx: it lives as long as one call of Unpack.
	ctx  context.Context
	into *os.File
	o    Options
	buf  []byte
	// parent is the directory that was last written in, at.
	parent *os.File
	at     string
	late   []lateMode
	warnings
}

// lateMode is the mode of a directory whose owner must not write into it; it is set last.
type lateMode struct {
	name string
	mode fs.FileMode
}

// place is where something goes that is called name in the stream.
func (u *unpacker) place(name string) (string, error) {
	inside := path.Clean(strings.TrimLeft(name, "/"))
	if !filepath.IsLocal(inside) || strings.ContainsRune(inside, 0) {
		return "", fmt.Errorf("%w: the name %q leads out of it", ErrArchive, name)
	}
	if u.o.From == "" {
		return inside, nil
	}
	rest, ok := inside, u.o.From == "."
	if !ok {
		if rest, ok = strings.CutPrefix(inside, u.o.From); ok && rest != "" {
			rest, ok = strings.CutPrefix(rest, "/")
		}
	}
	if !ok {
		return "", fmt.Errorf("%w: %q is not part of %q", ErrArchive, name, u.o.From)
	}
	return path.Join(u.o.To, rest), nil
}

func (u *unpacker) add(r io.Reader, h *tar.Header, name string) error {
	if isSparse(h) {
		return fmt.Errorf("%w: sparse files are not supported", ErrArchive)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(name, fs.FileMode(h.Mode).Perm())
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
		if name == "." {
			return fmt.Errorf("%w: it cannot be the directory itself", ErrArchive)
		}
		if err := u.enter(path.Dir(name)); err != nil {
			return err
		}
	}
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(r, base, fs.FileMode(h.Mode).Perm())
	case tar.TypeSymlink:
		if u.o.Careful && !stays(h.Linkname) {
			u.addf("%s was skipped: it is a link to %s", h.Name, h.Linkname)
			return nil
		}
		if err := u.clear(base); err != nil {
			return err
		}
		return unix.Symlinkat(h.Linkname, u.fd(), base)
	case tar.TypeLink:
		old, err := u.place(h.Linkname)
		if err != nil || old == name {
			return err
		}
		return u.link(old, base)
	case tar.TypeXGlobalHeader:
		return nil
	}
	u.addf("%s was skipped: it is neither a file nor a directory", h.Name)
	return nil
}

// isSparse reports whether a file is larger than its part of the stream: a few bytes could fill a disk.
func isSparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// stays reports whether a link target stays at or below the directory of the link.
func stays(target string) bool {
	return filepath.IsLocal(target) && path.Clean(target) == strings.TrimSuffix(target, "/")
}

// link makes a second name of a file.
func (u *unpacker) link(old, base string) error {
	dir, err := beneath(u.into, path.Dir(old))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := u.clear(base); err != nil {
		return err
	}
	return unix.Linkat(int(dir.Fd()), path.Base(old), u.fd(), base, 0)
}

// fd is that of the directory to write in.
func (u *unpacker) fd() int { return int(u.parent.Fd()) }

// enter makes a directory, with those above it, the one to write in.
func (u *unpacker) enter(dir string) error {
	if u.parent != nil && u.at == dir {
		return nil
	}
	if strings.Count(dir, "/") >= maxDepth {
		return fmt.Errorf("directories are nested more than %d deep", maxDepth)
	}
	parent, err := beneath(u.into, dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		if err := u.enter(path.Dir(dir)); err != nil {
			return err
		}
		if err := unix.Mkdirat(u.fd(), path.Base(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		parent, err = beneath(u.into, dir)
	}
	if err != nil {
		return err
	}
	made, err := foreign.KernelMade(parent)
	if made {
		err = errKernelMade
	}
	if err != nil {
		_ = parent.Close()
		return err
	}
	u.leave()
	u.parent, u.at = parent, dir
	return nil
}

var errKernelMade = errors.New("these are virtual files of the kernel; they cannot be written")

func (u *unpacker) leave() {
	if u.parent != nil {
		_ = u.parent.Close()
	}
	u.parent = nil
}

// directory creates a directory. An existing one is kept as it is.
func (u *unpacker) directory(name string, mode fs.FileMode) error {
	if name == "." {
		return nil
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	open := mode | 0o700 // else nothing could be put into it
	err := unix.Mkdirat(u.fd(), path.Base(name), uint32(open))
	if errors.Is(err, fs.ErrExist) {
		there, err := beneath(u.into, name)
		if err == nil {
			_ = there.Close()
		}
		return err
	}
	if err != nil {
		return err
	}
	if open != mode && len(u.late) < maxLateModes {
		u.late = append(u.late, lateMode{name, mode})
	}
	if u.o.Careful {
		return nil
	}
	return u.chmod(name, open)
}

// chmod gives a directory its mode.
func (u *unpacker) chmod(name string, mode fs.FileMode) error {
	dir, err := beneath(u.into, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return foreign.Chmod(dir, uint32(mode.Perm()))
}

// finish gives the directories the modes that they should have.
func (u *unpacker) finish() error {
	var errs []error
	for _, l := range slices.Backward(u.late) {
		if err := u.chmod(l.name, l.mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s: %w", l.name, plain(err)))
		}
	}
	return errors.Join(errs...)
}

// file writes a file, new or existing.
func (u *unpacker) file(r io.Reader, base string, mode fs.FileMode) error {
	f, fresh, err := u.create(base, mode)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, &reading{u.ctx, r}, u.buf)
	if err == nil && fresh && !u.o.Careful {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}

// create opens a regular file for writing: an existing one, truncated, so that bind mounts of it see the new content, otherwise a new one.
// Anything else of that name, and running programs, are replaced.
func (u *unpacker) create(base string, mode fs.FileMode) (f *os.File, fresh bool, err error) {
	f, err = u.rewrite(base)
	if f != nil || err != nil && !errors.Is(err, unix.ETXTBSY) && !errors.Is(err, fs.ErrNotExist) {
		return f, false, err
	}
	if err := u.clear(base); err != nil {
		return nil, false, err
	}
	f, err = foreign.Create(u.parent, base, mode)
	return f, err == nil, err
}

// rewrite opens an existing file and truncates it; nil if it is not a regular file.
func (u *unpacker) rewrite(base string) (*os.File, error) {
	place, err := foreign.Find(u.parent, base, foreign.Itself)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return nil, unix.EISDIR
	default:
		return nil, nil
	}
	f, _, err := foreign.Open(place, unix.O_WRONLY|unix.O_TRUNC)
	if errors.Is(err, foreign.ErrKernel) {
		err = errKernelMade
	}
	return f, err
}

// clear makes room for what is not a directory.
func (u *unpacker) clear(base string) error {
	if err := unix.Unlinkat(u.fd(), base, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
