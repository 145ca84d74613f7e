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

// CopyOut copies each path of an image, with owners and modes, to a directory of its own in dir, named 0, 1, and so on. It returns these
// directories by path. The copy of a path that the image lacks is empty.
func (s *Store) CopyOut(ctx context.Context, img *image.Image, dir string, paths []string) (map[string]string, error) {
	copies := map[string]string{}
	for i, p := range paths {
		copies[p] = filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(copies[p], 0o755); err != nil {
			return nil, err
		}
	}
	err := s.View(s.Namespaced(ctx), img.ChainID, func(root string) error {
		for _, p := range paths {
			if err := copyOut(root, p, copies[p]); err != nil {
				return fmt.Errorf("copy %s of image %s: %w", p, img.Name, err)
			}
		}
		return nil
	})
	return copies, err
}

// copyOut copies a directory of an image. Symbolic links in its path are resolved inside the image.
func copyOut(root, path, to string) error {
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
	return pathless(cfs.CopyDir(to, from))
}
