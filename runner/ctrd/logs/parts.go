package logs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"monopod/internal/regular"
)

// part is one open file of a log. It stays valid when the file is renamed or removed.
type part struct {
	f *os.File
	// stamp is that of a rotated file; empty for the current file.
	stamp string
	// text is the content of the file from the position of the reader.
	text io.Reader
	gz   bool
}

// openParts opens the files of the log at path that are newer than a stamp, oldest first. The last one is the current file, if it exists,
// or was the current one a moment ago; newest is the newest stamp of the others.
func openParts(path, after string) (parts []*part, newest string, err error) {
	// It is opened before the others are listed: if it is rotated meanwhile, it appears among them.
	last, err := openPart(path, "", false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	newest = after
	stamps, err := listStamps(path)
	if err != nil {
		closeParts([]*part{last})
		return nil, "", err
	}
	for _, stamp := range stamps {
		if stamp <= after {
			continue
		}
		p, err := openRotated(path, stamp)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed: there are too many
		}
		if err != nil {
			closeParts(append(parts, last))
			return nil, "", err
		}
		if last != nil && p.same(last) {
			closeParts([]*part{p})
			break // what is newer is found when this one has been read
		}
		parts, newest = append(parts, p), stamp
	}
	if last != nil {
		parts = append(parts, last)
	}
	if len(parts) == 0 {
		return nil, "", &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return parts, newest, nil
}

// listStamps lists the rotated files without gaps. A file renamed while the directory is read may be missed, so the directory is read
// twice: the second time finds all files that the first one may have missed.
func listStamps(path string) ([]string, error) {
	first, err := listFamily(path)
	if err != nil {
		return nil, err
	}
	second, err := listFamily(path)
	if err != nil {
		return nil, err
	}
	var stamps []string
	for _, r := range slices.Concat(first.old, second.old) {
		if r.stamp <= first.newest() {
			stamps = append(stamps, r.stamp)
		}
	}
	slices.Sort(stamps)
	return slices.Compact(stamps), nil
}

// openRotated prefers the plain file, which may be replaced by a compressed one at any moment.
func openRotated(path, stamp string) (*part, error) {
	plain := path + "." + stamp
	p, err := openPart(plain, stamp, false)
	if errors.Is(err, fs.ErrNotExist) {
		return openPart(plain+gzSuffix, stamp, true)
	}
	return p, err
}

func openPart(path, stamp string, gz bool) (*part, error) {
	f, _, err := regular.Open(path, unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	p := &part{f: f, stamp: stamp, gz: gz, text: f}
	if gz {
		p.text = &gzText{f: f}
	}
	return p, nil
}

func closeParts(parts []*part) {
	for _, p := range parts {
		if p != nil {
			p.f.Close()
		}
	}
}

// same reports whether both parts are the same log file, compressed or not. How they begin does not tell: pieces of long lines may be equal.
func (p *part) same(other *part) bool {
	a, err1 := p.f.Stat()
	b, err2 := other.f.Stat()
	switch {
	case err1 != nil || err2 != nil:
		return false
	case p.gz && !other.gz:
		return isCompressed(p.f, a.Size(), other.f, b.Size())
	case other.gz && !p.gz:
		return isCompressed(other.f, b.Size(), p.f, a.Size())
	}
	return os.SameFile(a, b)
}

// isCompressed reports whether a gzip file has the content of a plain one that is not empty, by the size and the checksum at its end (RFC 1952,
// section 2.3.1).
func isCompressed(gz io.ReaderAt, gzSize int64, plain io.ReaderAt, size int64) bool {
	var end [8]byte
	if _, err := gz.ReadAt(end[:], gzSize-int64(len(end))); size == 0 || err != nil || binary.LittleEndian.Uint32(end[4:]) != uint32(size) {
		return false
	}
	sum := crc32.NewIEEE()
	_, err := io.Copy(sum, io.NewSectionReader(plain, 0, size))
	return err == nil && binary.LittleEndian.Uint32(end[:4]) == sum.Sum32()
}

// tail positions the part at the last lines that c still needs; it returns false if the part has fewer and must be read whole.
func (p *part) tail(c *tailCounter) (bool, error) {
	if p.gz {
		return p.tailGz(c)
	}
	st, err := p.f.Stat()
	if err != nil {
		return false, err
	}
	start, found, err := tailStart(p.f, st.Size(), c)
	if err != nil {
		return false, err
	}
	_, err = p.f.Seek(start, io.SeekStart)
	return found, err
}

// tailGz reads a compressed file twice: the first time to count its lines.
func (p *part) tailGz(c *tailCounter) (bool, error) {
	lines, at := 0, 0
	last := [2]int{-1, -1} // of each stream, where the P is that no entry follows
	seen := c.seen
	err := p.entries(func(e entry) bool {
		s := streamOf(e)
		last[s], seen[s] = -1, true
		if !e.partial {
			lines++
		} else if !c.seen[s] {
			last[s] = at
		}
		at++
		return true
	})
	if err != nil {
		return false, err
	}
	for _, p := range last {
		if p >= 0 {
			lines++
		}
	}
	c.have, c.seen = c.have+lines, seen
	skip := c.have - c.want
	if skip <= 0 {
		p.text = &gzText{f: p.f}
		return false, nil
	}
	at = 0
	return true, p.entries(func(e entry) bool {
		if !e.partial || at == last[0] || at == last[1] {
			skip--
		}
		at++
		return skip > 0
	})
}

// entries reads the part from the beginning until f returns an error.
func (p *part) entries(f func(entry) bool) error {
	r := bufio.NewReaderSize(&gzText{f: p.f}, blockSize)
	p.text = r
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if e, ok := parseEntry(bytes.TrimSuffix(line, []byte{'\n'})); ok && err == nil && !f(e) {
			return nil
		}
	}
}

// gzText is the content of a compressed file. At damaged data the text ends without an error, so that later files are read.
type gzText struct {
	f *os.File
	z *gzip.Reader
}

// Read implements io.Reader.
func (g *gzText) Read(b []byte) (int, error) {
	if g.z == nil {
		z, err := gzip.NewReader(io.NewSectionReader(g.f, 0, 1<<62))
		if err != nil {
			return 0, ended(err)
		}
		g.z = z
	}
	n, err := g.z.Read(b)
	return n, ended(err)
}

// ended turns the errors of a damaged file into io.EOF.
func ended(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return io.EOF
	}
	return err
}

// realPath resolves a log file that may be a link, and may be missing briefly during a rotation.
func realPath(path string) (string, error) {
	if to, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}
