package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Pack returns an archive of the programs, compressed with compress, and its list. It is reproducible. It is used by `make bundle`.
func Pack(compress func(plain []byte) ([]byte, error), programs ...string) (archive, text []byte, err error) {
	files, err := read(programs)
	if err != nil {
		return nil, nil, err
	}
	plain, err := tarball(files)
	if err != nil {
		return nil, nil, err
	}
	if archive, err = compress(plain); err != nil {
		return nil, nil, err
	}
	l := listOf(files)
	l.version = Version(archive)
	return archive, l.text(), nil
}

// Packed reports whether archive and text are the result of Pack for these programs.
func Packed(archive, text []byte, programs ...string) bool {
	l, err := parseList(text)
	if err != nil || l.version != Version(archive) {
		return false
	}
	files, err := read(programs)
	return err == nil && slices.Equal(l.files, listOf(files).files)
}

// read returns the programs sorted by size, so that the CNI plugins, which are similar, are within one compression window, and monopod, which
// may be extracted alone, comes first.
func read(programs []string) ([]file, error) {
	files := make([]file, len(programs))
	for i, p := range programs {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		files[i] = file{filepath.Base(p), b}
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(len(b.content), len(a.content)), cmp.Compare(a.name, b.name))
	})
	return files, nil
}

func listOf(files []file) list {
	var l list
	for _, f := range files {
		l.files = append(l.files, listed{f.name, int64(len(f.content)), fmt.Sprintf("%x", sha256.Sum256(f.content))})
	}
	return l
}

func tarball(files []file) ([]byte, error) {
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: programMode, Size: int64(len(f.content)), ModTime: unpackedAt()}
		if err := t.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := t.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := t.Close()
	return buf.Bytes(), err
}

// Compress is a compressor of the standard library.
func Compress(plain []byte) ([]byte, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(16<<20))
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(plain, nil), nil
}

type file struct {
	name    string
	content []byte
}
