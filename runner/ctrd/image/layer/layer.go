// Package layer compares an image layer with the directory that it was unpacked to, and knows how overlayfs marks removed files.
// It must not repair anything else.
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

	"monopod/internal/regular"
)

// Names in layers that mark removed files, from the OCI image specification.
const (
	whiteout       = ".wh."
	whiteoutMeta   = whiteout + whiteout
	whiteoutOpaque = whiteoutMeta + ".opq"
)

// BlockSize is how many bytes of a file are compared at once.
const BlockSize = 128 << 10

// comparison compares a directory with a layer.
type comparison struct {
	root string
	// overlay reports whether removed files are marked by overlayfs whiteouts.
	overlay bool
	// pause is called between blocks.
	pause func() error

	// wrong has the differences by path. If a path occurs twice in the layer, the last entry counts.
	wrong    map[string]string
	in, have [BlockSize]byte
}

// Compare reads the tar of a layer and returns how the directory differs, with a line for each file.
func Compare(layer io.Reader, root string, overlay bool, pause func() error) ([]string, error) {
	c := &comparison{root: filepath.Clean(root), overlay: overlay, pause: pause, wrong: map[string]string{}}
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
		if err := pause(); err != nil {
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

// entry compares one entry. Errors are those of reading the layer; differences of the directory are recorded in wrong.
func (c *comparison) entry(hdr *tar.Header, content io.Reader) error {
	dir, base := filepath.Split(filepath.Clean(hdr.Name))
	parent, err := cfs.RootPath(c.root, dir)
	if err != nil { // a dangling symbolic link instead of a directory
		c.wrong[hdr.Name] = err.Error()
		return nil
	}
	path := filepath.Join(parent, filepath.Join("/", base))
	if path == c.root || strings.HasPrefix(base, whiteoutMeta) && base != whiteoutOpaque {
		return nil
	}
	delete(c.wrong, c.name(path))
	if base == whiteoutOpaque {
		return nil // the files it hides are in other directories
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

// removed checks that a path is marked as removed.
func (c *comparison) removed(path string) {
	delete(c.wrong, c.name(path))
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	marked := err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
	if c.overlay && !marked {
		c.wrong[c.name(path)] = "is not marked as removed"
	}
}

// file describes how a file differs, or returns "".
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

// typeOf returns the mode of the file that an entry creates, or 0 for types that are not compared.
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
	f, _, err := regular.Open(path, unix.O_NOFOLLOW)
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
		if err := c.pause(); err != nil {
			return "", err
		}
	}
}

// RemoveWhiteouts removes the marks of removed files, which unpacking the layer creates again, and which must not exist then.
func RemoveWhiteouts(root string) error {
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
