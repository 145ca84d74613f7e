package bounded

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxEntries is the maximum number of files in an archive of images, without directories. Each becomes content of its own,
	// which takes milliseconds; two hundred images with ten layers each have fewer in any format.
	maxEntries = 10_000
	// An unpacked archive may have maxArchive bytes, and maxRatio bytes for each compressed byte.
	maxArchive = 8 << 30
	maxRatio   = 100
)

// Archive reads an archive of images from a source of size compressed bytes. It passes on only what an importer reads, files and
// links, and returns an error if the archive exceeds a limit. The caller must close it.
func Archive(from io.Reader, size int64) io.ReadCloser {
	r, w := io.Pipe()
	f := &filter{in: &counted{Reader: from, left: maxArchive + maxRatio*size}, out: tar.NewWriter(w), buffer: make([]byte, 32<<10)}
	a := &archive{PipeReader: r, ended: make(chan struct{})}
	go func() { // ends when r is closed
		defer close(a.ended)
		_ = w.CloseWithError(f.all())
	}()
	return a
}

type archive struct {
	*io.PipeReader
	ended chan struct{}
}

// Close implements io.Closer. Afterwards nothing reads from the source.
func (a *archive) Close() error {
	err := a.PipeReader.Close()
	<-a.ended
	return err
}

type filter struct {
	in      *counted
	out     *tar.Writer
	entries int
	// bytes is the sum of the file sizes in headers: holes of sparse files are not in the input.
	bytes int64
	// buffer is shared by all files, because an archive may have many small ones.
	buffer []byte
}

func (f *filter) all() error {
	most := f.in.left
	for from := tar.NewReader(f.in); ; {
		hdr, err := from.Next()
		if errors.Is(err, io.EOF) {
			return f.out.Close()
		}
		if err != nil {
			return err
		}
		if hdr.Typeflag != tar.TypeDir {
			f.entries++
		}
		if f.entries > maxEntries {
			return fmt.Errorf("the archive has more than %d files: %w", maxEntries, errdefs.ErrResourceExhausted)
		}
		if hdr.Size > most-f.bytes {
			return tooMuch(most)
		}
		f.bytes += hdr.Size
		if err := f.entry(hdr, from); err != nil {
			return err
		}
	}
}

func (f *filter) entry(hdr *tar.Header, content io.Reader) error {
	// Importers use no other fields, and some headers can be read but not written.
	plain := &tar.Header{Typeflag: hdr.Typeflag, Name: hdr.Name, Linkname: hdr.Linkname, Size: hdr.Size, Mode: 0o600}
	switch hdr.Typeflag {
	case tar.TypeReg:
	case tar.TypeSymlink:
		plain.Size = 0
		return f.out.WriteHeader(plain)
	default:
		return nil
	}
	if name := path.Clean(hdr.Name); name == "manifest.json" || name == ocispec.ImageLayoutFile { // decoded by the importer
		text, err := readJSON(hdr, content)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	if err := f.out.WriteHeader(plain); err != nil {
		return err
	}
	_, err := io.CopyBuffer(f.out, content, f.buffer)
	return err
}

func readJSON(hdr *tar.Header, content io.Reader) ([]byte, error) {
	if hdr.Size > MaxMetadata {
		return nil, fmt.Errorf("%q has %d bytes, the limit is %d: %w", hdr.Name, hdr.Size, MaxMetadata, errdefs.ErrResourceExhausted)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	if err := countValues(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("%q: %w", hdr.Name, err)
	}
	return text, nil
}

// counted is a reader with at most left bytes.
type counted struct {
	io.Reader
	left int64
}

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.left -= int64(n); c.left < 0 {
		return 0, tooMuch(maxArchive)
	}
	return n, err
}

func tooMuch(most int64) error {
	return fmt.Errorf("the archive has more than %d bytes unpacked, too many for its size: %w", most, errdefs.ErrResourceExhausted)
}
