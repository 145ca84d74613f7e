// Package layer compares the layer of an image with what was unpacked from it. It repairs nothing.
package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cfs "github.com/containerd/continuity/fs"
	"golang.org/x/sys/unix"
)

// Names in layers that stand for something that is gone.
const (
	whiteout       = ".wh."
	whiteoutMeta   = whiteout + whiteout
	whiteoutOpaque = whiteoutMeta + ".opq"
)

// CompareBlock is how much of a file is compared at once.
const CompareBlock = 128 << 10

// comparison looks whether a directory has what a layer says.
type comparison struct {
	root string
	// overlay says that what the layer removes is marked as overlayfs wants it.
	overlay bool
	// rest is called between blocks.
	rest func() error

	// wrong has what is not as it should be, by path. A path that comes twice counts as it is at last.
	wrong    map[string]string
	in, have [CompareBlock]byte
}

// CompareLayer reads the tar of a layer and returns what of it is not in the directory, as a line for each file.
func CompareLayer(layer io.Reader, root string, overlay bool, rest func() error) ([]string, error) {
	c := &comparison{root: filepath.Clean(root), overlay: overlay, rest: rest, wrong: map[string]string{}}
	for r := tar.NewReader(layer); ; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c.lines(), nil
		}
		if err != nil {
			return nil, err
		}
		if err := c.entry(hdr, r); err != nil {
			return nil, err
		}
		if err := rest(); err != nil {
			return nil, err
		}
	}
}

func (c *comparison) lines() []string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(c.wrong)) {
		all = append(all, path+": "+c.wrong[path])
	}
	return all
}

// entry compares one entry. Errors are those of the layer: what is wrong with the directory is noted.
func (c *comparison) entry(hdr *tar.Header, content io.Reader) error {
	dir, base := filepath.Split(filepath.Clean(hdr.Name))
	parent, err := cfs.RootPath(c.root, dir)
	if err != nil { // a link that leads nowhere where a directory should be
		c.wrong[hdr.Name] = err.Error()
		return nil
	}
	path := filepath.Join(parent, filepath.Join("/", base))
	if path == c.root || strings.HasPrefix(base, whiteoutMeta) && base != whiteoutOpaque {
		return nil
	}
	delete(c.wrong, c.name(path))
	if base == whiteoutOpaque {
		return nil // what it hides is in other directories
	}
	if gone, ok := strings.CutPrefix(base, whiteout); ok {
		c.removed(filepath.Join(parent, gone))
		return nil
	}
	what, err := c.file(path, hdr, content)
	if what != "" {
		c.wrong[c.name(path)] = what
	}
	return err
}

func (c *comparison) name(path string) string { return strings.TrimPrefix(path, c.root) }

// removed compares a path that the layer removes.
func (c *comparison) removed(path string) {
	delete(c.wrong, c.name(path))
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	marked := err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
	if c.overlay && !marked {
		c.wrong[c.name(path)] = "is not marked as removed"
	}
}

// file says what is wrong with a file; empty: nothing.
func (c *comparison) file(path string, hdr *tar.Header, content io.Reader) (string, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "is missing", nil
	}
	if err != nil {
		return err.Error(), nil
	}
	if want := typeOf(hdr); want != 0 && st.Mode().Type() != want&fs.ModeType {
		return fmt.Sprintf("is %v, not %v", st.Mode().Type(), want&fs.ModeType), nil
	}
	switch hdr.Typeflag {
	case tar.TypeReg:
		if st.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != hdr.FileInfo().Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) {
			return fmt.Sprintf("has mode %v, not %v", st.Mode(), hdr.FileInfo().Mode()), nil
		}
		if st.Size() != hdr.Size {
			return fmt.Sprintf("has %d bytes, not %d", st.Size(), hdr.Size), nil
		}
		return c.content(path, content)
	case tar.TypeSymlink:
		if to, err := os.Readlink(path); err != nil || to != hdr.Linkname {
			return fmt.Sprintf("leads to %q, not %q", to, hdr.Linkname), nil
		}
	}
	return "", nil
}

// typeOf is the mode of what an entry makes, never 0; 0: it is not compared.
func typeOf(hdr *tar.Header) fs.FileMode {
	switch hdr.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeFifo:
		return hdr.FileInfo().Mode() | fs.ModePerm
	default:
		return 0
	}
}

// content compares the bytes of a file.
func (c *comparison) content(path string, content io.Reader) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return err.Error(), nil
	}
	defer func() { _ = f.Close() }()
	for at := int64(0); ; {
		n, err := io.ReadFull(content, c.in[:])
		if n == 0 && errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return "", err
		}
		if _, err := io.ReadFull(f, c.have[:n]); err != nil {
			return err.Error(), nil
		}
		if !bytes.Equal(c.in[:n], c.have[:n]) {
			return fmt.Sprintf("differs after %d bytes", at), nil
		}
		at += int64(n)
		if err := c.rest(); err != nil {
			return "", err
		}
	}
}

// ClearMarks removes what marks removed files: it is made anew with the layer, and must not be there then.
func ClearMarks(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeDevice|fs.ModeCharDevice {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Rdev != 0 {
			return err
		}
		return os.Remove(path)
	})
}
