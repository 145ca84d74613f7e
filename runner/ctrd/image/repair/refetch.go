package repair

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/archive"
)

// TempPrefix begins the names of temporary files in the content directory.
const TempPrefix = "heal-"

// refetch replaces a damaged blob in the content directory, from an archive or else from the registry, and returns which. containerd's own
// API cannot do that: it takes the damaged file for the blob.
func (c *checker) refetch(ctx context.Context, name string, desc ocispec.Descriptor) (from string, err error) {
	if c.ContentDir == "" {
		return "", errors.New("the content store of an external containerd is not modified; remove the image and pull it again")
	}
	ctx, unwatch := c.Local.Disk.Watch(ctx)
	defer func() { unwatch(); err = bounded.Cause(ctx, err) }()
	tmp, err := os.CreateTemp(c.ContentDir, TempPrefix+"*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tmp.Close(), removeIfExists(tmp.Name())) }()
	archives, err := archive.List(c.ArchiveDirs)
	if err != nil {
		c.Log.Warn("read preload directories", "err", err)
	}
	for _, path := range archives {
		if archive.FindBlob(ctx, path, desc, tmp) == nil {
			return path, install(tmp, desc, c.ContentDir)
		}
	}
	// Without Client.Begin: a pull that holds its place in the queue may wait for this.
	err = c.Registry.Try(ctx, name, nil, func(ctx context.Context, resolver remotes.Resolver) error {
		fetcher, err := resolver.Fetcher(ctx, name)
		if err != nil {
			return err
		}
		r, err := fetcher.Fetch(ctx, ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size})
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		return archive.CopyBlob(tmp, r, desc)
	})
	if err != nil {
		return "", err
	}
	return "the registry", install(tmp, desc, c.ContentDir)
}

func removeIfExists(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// install syncs a file and renames it to the path of its blob.
func install(tmp *os.File, desc ocispec.Descriptor, contentDir string) error {
	dir := filepath.Join(contentDir, "blobs", desc.Digest.Algorithm().String())
	if err := errors.Join(tmp.Chmod(0o444), tmp.Sync(), os.Rename(tmp.Name(), filepath.Join(dir, desc.Digest.Encoded()))); err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}
