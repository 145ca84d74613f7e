package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/containerd/v2/core/mount"
	cfs "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	"monopod/runner/ctrd/image"
)

// View mounts a read-only view of an image while f runs.
func (s *Store) View(ctx context.Context, chainID string, f func(root string) error) (err error) {
	ctx, release, err := s.Client.WithLease(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = release(context.WithoutCancel(ctx)) }()
	sn := s.Client.SnapshotService(s.Snapshotter)
	key := "monopod-look-" + uuid.NewString()
	mounts, err := sn.View(ctx, key, chainID)
	if err != nil {
		return err
	}
	defer func() {
		if rerr := sn.Remove(context.WithoutCancel(ctx), key); rerr != nil && !errdefs.IsNotFound(rerr) {
			err = errors.Join(err, rerr)
		}
	}()
	return mount.WithReadonlyTempMount(ctx, mounts, f)
}

// Copies are directories of an image that a container gets copies of.
type Copies struct {
	Image *image.Image
	// Dir is where they are created, named 0, 1, and so on.
	Dir   string
	Paths []string
	// Limit is how much disk space they may take together; 0: any.
	Limit int64
}

// CopyOut copies directories of an image, with owners and modes, and returns the copies by path. The copy of a path that the image lacks is
// empty. It stops when ctx ends, at the limit, and before a file that the disk has no room for.
func (s *Store) CopyOut(ctx context.Context, q Copies) (map[string]string, error) {
	made := map[string]string{}
	for i, p := range q.Paths {
		made[p] = filepath.Join(q.Dir, strconv.Itoa(i))
		if err := os.MkdirAll(made[p], 0o755); err != nil {
			return nil, err
		}
	}
	disk := s.Disk
	if disk.Dir != "" {
		disk.Dir = q.Dir // not always the file system of the images
	}
	c := &copier{limit: q.Limit, disk: disk.Guard()}
	err := s.View(s.Namespaced(ctx), q.Image.ChainID, func(root string) error {
		for _, p := range q.Paths {
			if err := c.copyOut(ctx, root, p, made[p]); err != nil {
				return fmt.Errorf("copy %s of image %s: %w", p, q.Image.Name, err)
			}
		}
		return nil
	})
	return made, err
}

// copyOut copies a directory of an image. Symbolic links in its path are resolved inside the image.
func (c *copier) copyOut(ctx context.Context, root, path, to string) error {
	from, err := cfs.RootPath(root, path)
	if err != nil {
		return pathless(err)
	}
	fi, err := os.Lstat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathless(err)
	}
	if !fi.IsDir() {
		return errors.New("it is not a directory")
	}
	clear(c.links) // each copy is a volume of its own
	return pathless(c.dir(ctx, from, to))
}
