// Package archive reads OCI and docker image archives: their names, their content within the limits of package bounded, and single blobs.
// It must not import anything into containerd, which package preload does.
package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/internal/regular"
	"monopod/runner/ctrd/bounded"
)

// suffixes are the file name suffixes of archives.
func suffixes() []string { return []string{".tar", ".tar.gz", ".tgz", ".tar.zst"} }

// Stem returns the name of an archive without its suffix. ok is false for other files, and for hidden files, which by convention are
// incomplete.
func Stem(path string) (stem string, ok bool) {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") {
		return "", false
	}
	for _, suffix := range suffixes() {
		if s, found := strings.CutSuffix(name, suffix); found && s != "" {
			return s, true
		}
	}
	return "", false
}

// List returns the paths of the archives in directories, sorted by name within each. Missing directories are skipped. With an error, which
// names the directories that cannot be read, the archives of the others are returned.
func List(dirs []string) ([]string, error) {
	var paths []string
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if _, ok := Stem(e.Name()); ok {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	return paths, errors.Join(errs...)
}

// versionLike matches names that are versions rather than images.
var versionLike = regexp.MustCompile(`^(latest|v?[0-9][0-9A-Za-z._-]*)$`)

// ImageName returns the normalised name of an image, given the stem of its archive and its name in there:
//
//	io.containerd.image.name or a docker RepoTag    normalised: busybox -> docker.io/library/busybox:latest
//	org.opencontainers.image.ref.name with / : or @ the same
//	a bare word like "web"                          an image name: docker.io/library/web:latest
//	a bare version like "1.2", "v3", "latest"       a tag of the archive's own name: web.tar -> docker.io/library/web:1.2
//	nothing                                         the archive's own name: web.tar -> docker.io/library/web:latest
//
// The stem may end in a version after an underscore: web_1.2.tar -> docker.io/library/web:1.2.
func ImageName(stem, ref string) (string, error) {
	base, tag := stemTag(stem)
	switch {
	case ref == "" && tag != "":
		ref = base + ":" + tag
	case ref == "":
		ref = base
	case !strings.ContainsAny(ref, "/:@") && versionLike.MatchString(ref):
		ref = base + ":" + ref
	}
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", ref, err)
	}
	return named.String(), nil
}

// stemTag splits a stem at its last underscore if a version follows it.
func stemTag(stem string) (base, tag string) {
	stem = strings.ToLower(stem)
	if i := strings.LastIndex(stem, "_"); i > 0 && versionLike.MatchString(stem[i+1:]) {
		return stem[:i], stem[i+1:]
	}
	return stem, ""
}

// Reader reads the tar of an archive, until its context ends.
type Reader struct {
	io.Reader
	closers []io.Closer
}

// Open opens an archive, compressed or not. The caller must close it.
func Open(ctx context.Context, path string) (_ *Reader, err error) {
	f, st, err := regular.Open(path, 0)
	if err != nil {
		return nil, err
	}
	a := &Reader{closers: []io.Closer{f}}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	plain, err := bounded.Decompress(&contextReader{ctx, f})
	if err != nil {
		return nil, err
	}
	tarred := bounded.Archive(plain, st.Size())
	a.Reader, a.closers = &contextReader{ctx, tarred}, append(a.closers, plain, tarred) // holes are not read from the file, so check the context again
	return a, nil
}

// Close closes the layers of the reader, the outermost first.
func (a *Reader) Close() {
	for _, c := range slices.Backward(a.closers) {
		_ = c.Close()
	}
}

// contextReader stops reading when its context ends: an archive can have gigabytes.
type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Reader has no parameter for it
	r   io.Reader
}

// Read implements io.Reader.
func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// errNoBlob reports an archive without the blob.
var errNoBlob = errors.New("blob not found in the archive")

// FindBlob searches an archive for a blob by size and digest, and writes it to a file.
func FindBlob(ctx context.Context, path string, desc ocispec.Descriptor, to *os.File) error {
	a, err := Open(ctx, path)
	if err != nil {
		return err
	}
	defer a.Close()
	for r := tar.NewReader(a); ; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return errNoBlob
		}
		if err != nil {
			return err
		}
		if hdr.Typeflag == tar.TypeReg && hdr.Size == desc.Size && CopyBlob(to, r, desc) == nil {
			return nil
		}
	}
}

// CopyBlob replaces the content of a file by a blob, and verifies its digest.
func CopyBlob(to *os.File, r io.Reader, desc ocispec.Descriptor) error {
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := to.Truncate(0); err != nil {
		return err
	}
	v := desc.Digest.Verifier()
	if _, err := io.Copy(io.MultiWriter(to, v), io.LimitReader(r, desc.Size+1)); err != nil {
		return err
	}
	if !v.Verified() {
		return fmt.Errorf("content does not match %s", desc.Digest)
	}
	return nil
}
