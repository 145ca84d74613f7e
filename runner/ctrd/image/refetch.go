package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/registry"
)

// TempPrefix begins the names of files in the content directory that are to become blobs.
const TempPrefix = "heal-"

// refetch puts a blob into the content directory in the place of a damaged one, and says where it had it from: an
// archive of a preload directory, or the registry. containerd itself would take the damaged file for the blob.
func (s *Store) refetch(ctx context.Context, name string, desc ocispec.Descriptor, blobs string) (from string, err error) {
	if blobs == "" {
		return "", errors.New("the content of this containerd is not ours to repair; remove the image and pull it again")
	}
	ctx, unwatch := s.cfg.Disk.Watch(ctx)
	defer func() { unwatch(); err = bounded.Cause(ctx, err) }()
	tmp, err := os.CreateTemp(blobs, TempPrefix+"*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tmp.Close(), removed(tmp.Name())) }()
	for _, path := range (&preloader{store: s}).archives() {
		if findBlob(ctx, path, desc, tmp) == nil {
			return path, place(tmp, desc, blobs)
		}
	}
	if err := s.fetchBlob(ctx, name, desc, tmp); err != nil {
		return "", err
	}
	return "the registry", place(tmp, desc, blobs)
}

func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// place gives a file the name of the blob that it is. It is on the disk then.
func place(tmp *os.File, desc ocispec.Descriptor, blobs string) error {
	dir := filepath.Join(blobs, "blobs", desc.Digest.Algorithm().String())
	if err := errors.Join(tmp.Chmod(0o444), tmp.Sync(), os.Rename(tmp.Name(), filepath.Join(dir, desc.Digest.Encoded()))); err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}

// errNoBlob is that of an archive that does not have a blob.
var errNoBlob = errors.New("is not in it")

// findBlob looks in an image archive for a blob, whatever its name there, and copies it to tmp.
func findBlob(ctx context.Context, path string, desc ocispec.Descriptor, tmp *os.File) error {
	archive, err := openArchive(ctx, path)
	if err != nil {
		return err
	}
	defer archive.Close()
	for r := tar.NewReader(archive); ; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return errNoBlob
		}
		if err != nil {
			return err
		}
		if hdr.Typeflag == tar.TypeReg && hdr.Size == desc.Size && copyBlob(tmp, r, desc) == nil {
			return nil
		}
	}
}

// copyBlob writes a blob to tmp from its beginning, and fails unless it is the one.
func copyBlob(tmp *os.File, r io.Reader, desc ocispec.Descriptor) error {
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := tmp.Truncate(0); err != nil {
		return err
	}
	v := desc.Digest.Verifier()
	if _, err := io.Copy(io.MultiWriter(tmp, v), io.LimitReader(r, desc.Size+1)); err != nil {
		return err
	}
	if !v.Verified() {
		return fmt.Errorf("it is not %s", desc.Digest)
	}
	return nil
}

// fetchBlob has a blob of an image from its registry, as a pull would. It takes no turn: a pull that has one may wait for it.
func (s *Store) fetchBlob(ctx context.Context, name string, desc ocispec.Descriptor, tmp *os.File) error {
	logins, err := s.cfg.Providers.Logins(ctx, name)
	errs := []error{err}
	ctx = registry.WithLogins(ctx, append(registry.SecretLogins(ctx), logins...))
	for _, login := range registry.Candidates(ctx, name) {
		err := s.fetchBlobAs(ctx, name, desc, tmp, login)
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *Store) fetchBlobAs(ctx context.Context, name string, desc ocispec.Descriptor, tmp *os.File, login *registry.Login) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &registry.Way{Access: s.cfg.Access, Name: name, Login: login, Logins: registry.SecretLogins(ctx), Wrap: func(next http.RoundTripper) http.RoundTripper {
		return &registry.Watchdog{Next: s.limits.Slow(next), Stalled: func() { cancel(errStalled) }}
	}}
	defer w.Close()
	fetcher, err := w.Resolver(ctx).Fetcher(ctx, name)
	if err != nil {
		return err
	}
	r, err := fetcher.Fetch(ctx, ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return copyBlob(tmp, r, desc)
}
