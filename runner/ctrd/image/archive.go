package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"monopod/internal/regular"
	"monopod/runner/ctrd/bounded"
)

// archiveSuffixes are the names of files that are imported.
func archiveSuffixes() []string { return []string{".tar", ".tar.gz", ".tgz", ".tar.zst"} }

// archiveStem is the name of an archive without its suffix; ok says whether it has one.
func archiveStem(path string) (stem string, ok bool) {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") {
		return "", false // not yet complete, by common habit
	}
	for _, suffix := range archiveSuffixes() {
		if s, found := strings.CutSuffix(name, suffix); found && s != "" {
			return s, true
		}
	}
	return "", false
}

// looksLikeTag matches names that are versions rather than images.
var looksLikeTag = regexp.MustCompile(`^(latest|v?[0-9][0-9A-Za-z._-]*)$`)

// archiveName makes the name of an image from what the archive calls it:
//
//	io.containerd.image.name or a docker RepoTag    normalised: busybox -> docker.io/library/busybox:latest
//	org.opencontainers.image.ref.name with / : or @ the same
//	a bare word like "web"                          an image name: docker.io/library/web:latest
//	a bare version like "1.2", "v3", "latest"       a tag of the archive's own name: web.tar -> docker.io/library/web:1.2
//	nothing                                         the archive's own name: web.tar -> docker.io/library/web:latest
//
// An archive's own name may hold a version after the last "_": web_1.2.tar -> docker.io/library/web:1.2.
func archiveName(stem, ref string) (string, error) {
	base, tag := stemTag(stem)
	switch {
	case ref == "" && tag != "":
		ref = base + ":" + tag
	case ref == "":
		ref = base
	case !strings.ContainsAny(ref, "/:@") && looksLikeTag.MatchString(ref):
		ref = base + ":" + ref
	}
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", ref, err)
	}
	return named.String(), nil
}

// stemTag splits a stem at its last "_" when what follows is a version.
func stemTag(stem string) (base, tag string) {
	stem = strings.ToLower(stem)
	if i := strings.LastIndex(stem, "_"); i > 0 && looksLikeTag.MatchString(stem[i+1:]) {
		return stem[:i], stem[i+1:]
	}
	return stem, ""
}

// importArchive imports an archive, unpacks its images for this machine's platform and returns their names.
func (s *Store) importArchive(ctx context.Context, path string) (names []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // containerd's client leaves the streams open by which it writes content
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.writing(ctx, st.Size())
	if err != nil {
		return nil, err
	}
	defer func() { err = done(err) }()
	stem, _ := archiveStem(path)
	r, err := openArchive(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	var nameErrs []error
	name := func(ref string) string {
		n, err := archiveName(stem, ref)
		if err != nil {
			nameErrs = append(nameErrs, err)
		}
		return n
	}
	recs, err := s.client.Import(bounded.Importing(ctx), r,
		client.WithImageRefTranslator(name),
		client.WithDigestRef(func(digest.Digest) string { return name("") }),
		client.WithSkipDigestRef(func(n string) bool { return n != "" }))
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return nil, fmt.Errorf("it is not a complete OCI or docker archive: %w", err)
	}
	if err != nil {
		return nil, err
	}
	names, err = s.finish(ctx, stem, recs)
	if err := errors.Join(append(nameErrs, err)...); err != nil {
		return names, err
	}
	if len(names) == 0 {
		return nil, errors.New("it holds no image")
	}
	return names, nil
}

// archiveReader reads the tar of an archive, within the limits of package bounded, until its context ends.
type archiveReader struct {
	io.Reader
	closers []io.Closer
}

// openArchive opens an archive. The caller must close it.
func openArchive(ctx context.Context, path string) (_ *archiveReader, err error) {
	f, st, err := regular.Open(path, 0)
	if err != nil {
		return nil, err
	}
	a := &archiveReader{closers: []io.Closer{f}}
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
	a.Reader, a.closers = &contextReader{ctx, tarred}, append(a.closers, plain, tarred) // holes are read from no file
	return a, nil
}

// Close closes what is read, then what that reads from.
func (a *archiveReader) Close() {
	for _, c := range slices.Backward(a.closers) {
		_ = c.Close()
	}
}

// finish gives imported images their normal names and unpacks them.
func (s *Store) finish(ctx context.Context, stem string, recs []images.Image) (names []string, err error) {
	var errs []error
	for _, rec := range recs {
		rec, err := s.rename(ctx, stem, rec)
		if err == nil {
			_, err = s.present(ctx, rec.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", rec.Name, err))
			continue
		}
		names = append(names, rec.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(errs...)
}

// rename stores an image under its normal name. The importer takes io.containerd.image.name as it is. What
// a registry once said about an image of that name is no longer true.
func (s *Store) rename(ctx context.Context, stem string, rec images.Image) (images.Image, error) {
	name, err := archiveName(stem, rec.Name)
	if err != nil {
		return rec, err
	}
	store, old := s.client.ImageService(), rec.Name
	rec.Name = name
	delete(rec.Labels, labelPulled)
	rec, err = store.Update(ctx, rec)
	if errdefs.IsNotFound(err) {
		rec.Name = name
		rec, err = store.Create(ctx, rec)
	}
	if err == nil && old != name {
		err = store.Delete(ctx, old)
	}
	return rec, err
}

// contextReader stops reading when its context ends: an archive can have gigabytes.
type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Reader has no place for one
	r   io.Reader
}

// Read implements io.Reader.
func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
