package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Pack writes the archive that Unpack unpacks, with the given programs. The same programs give the same
// archive. It is for `make bundle`.
func Pack(w io.Writer, programs ...string) error {
	files := make([]file, len(programs))
	for i, p := range programs {
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		files[i] = file{filepath.Base(p), b}
	}
	// By size: the CNI plugins, which are much alike, come to lie in one window.
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(len(a.content), len(b.content)), cmp.Compare(a.name, b.name))
	})
	var list bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(f.content), f.name)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(16<<20))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	if err := add(t, sumsFile, 0o644, list.Bytes()); err != nil {
		return err
	}
	for _, f := range files {
		if err := add(t, f.name, 0o755, f.content); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

type file struct {
	name    string
	content []byte
}

func add(t *tar.Writer, name string, mode int64, content []byte) error {
	h := &tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(1, 0)}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err := t.Write(content)
	return err
}
