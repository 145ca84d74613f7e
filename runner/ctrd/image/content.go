package image

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
)

// look mounts a read-only view of an image for as long as f runs.
func (s *Store) look(ctx context.Context, chainID string, f func(root string) error) (err error) {
	ctx, release, err := s.client.WithLease(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = release(context.WithoutCancel(ctx)) }()
	sn := s.client.SnapshotService(s.cfg.Snapshotter)
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

// CopyOut makes a directory in dir for each path, named 0, 1, ..., with a copy of what the image has there, owners and
// modes included. It returns them by path. A path that the image does not have is an empty directory.
func (s *Store) CopyOut(ctx context.Context, img *Image, dir string, paths []string) (map[string]string, error) {
	copies := map[string]string{}
	for i, p := range paths {
		copies[p] = filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(copies[p], 0o755); err != nil {
			return nil, err
		}
	}
	err := s.look(s.namespaced(ctx), img.ChainID, func(root string) error {
		for _, p := range paths {
			if err := copyOut(root, p, copies[p]); err != nil {
				return fmt.Errorf("copy %s of image %s: %w", p, img.Name, err)
			}
		}
		return nil
	})
	return copies, err
}

// copyOut copies a directory of an image; links on the way to it stay inside of the image.
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
