package repair

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/layer"
)

// snapshot compares the directory of a layer with its tar, and unpacks the layer again if they differ.
func (c *checker) snapshot(ctx context.Context, rec images.Image, desc ocispec.Descriptor, chain string, pause func() error) error {
	if c.Local.Snapshotter != "overlayfs" {
		return nil // other snapshotters have no directory per layer
	}
	mounts, release, err := c.view(ctx, chain)
	if err != nil {
		return err
	}
	defer release()
	dir, overlay := layerDir(mounts)
	if dir == "" {
		return fmt.Errorf("layer %s: unexpected mounts of its snapshot", desc.Digest)
	}
	wrong, err := c.compare(ctx, desc, dir, overlay, pause)
	if err != nil || len(wrong) == 0 {
		return err
	}
	damage := fmt.Sprintf("%d files of layer %s are damaged, the first: %s", len(wrong), desc.Digest, wrong[0])
	err = c.unpackAgain(ctx, desc, mounts)
	if err == nil {
		if wrong, err = c.compare(ctx, desc, dir, overlay, pause); err == nil && len(wrong) > 0 {
			err = fmt.Errorf("after it was unpacked again: %s", strings.Join(wrong[:min(len(wrong), 3)], ", "))
		}
	}
	c.OnDamage(rec.Name, damage, err)
	return err
}

// view creates a view snapshot of a chain, whose mounts name the directories of its layers.
func (c *checker) view(ctx context.Context, chain string) ([]mount.Mount, func(), error) {
	ctx, end, err := c.Local.Client.WithLease(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx = context.WithoutCancel(ctx)
	sn := c.Local.Client.SnapshotService(c.Local.Snapshotter)
	key := "monopod-heal-" + uuid.NewString()
	mounts, err := sn.View(ctx, key, chain)
	if err != nil {
		return nil, nil, errors.Join(err, end(ctx))
	}
	return mounts, func() {
		if err := errors.Join(sn.Remove(ctx, key), end(ctx)); err != nil {
			c.Log.Warn("remove the view of a layer", "err", err)
		}
	}, nil
}

// layerDir returns the directory of the uppermost layer of a view. overlay reports whether it has layers below.
func layerDir(mounts []mount.Mount) (dir string, overlay bool) {
	if len(mounts) != 1 {
		return "", false
	}
	if mounts[0].Type == "bind" {
		return mounts[0].Source, false
	}
	dirs := lowerDirs(mounts[0])
	if len(dirs) == 0 {
		return "", false
	}
	return dirs[0], true
}

func lowerDirs(m mount.Mount) []string {
	for _, o := range m.Options {
		if dirs, ok := strings.CutPrefix(o, "lowerdir="); ok {
			return strings.Split(dirs, ":")
		}
	}
	return nil
}

// compare returns the differences between a layer and its directory.
func (c *checker) compare(ctx context.Context, desc ocispec.Descriptor, dir string, overlay bool, pause func() error) ([]string, error) {
	r, err := c.Local.Client.ContentStore().ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	plain, err := bounded.Decompress(content.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", desc.Digest, err)
	}
	defer func() { _ = plain.Close() }()
	wrong, err := layer.Compare(plain, dir, overlay, pause)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", desc.Digest, err)
	}
	return wrong, nil
}

// unpackAgain unpacks a layer over the content of its directory.
func (c *checker) unpackAgain(ctx context.Context, desc ocispec.Descriptor, view []mount.Mount) error {
	dir, overlay := layerDir(view)
	into := []mount.Mount{{Type: "bind", Source: dir, Options: []string{"rw", "rbind"}}}
	if overlay {
		if err := layer.RemoveWhiteouts(dir); err != nil {
			return err
		}
		below := strings.Join(lowerDirs(view[0])[1:], ":")
		into = []mount.Mount{{Type: "overlay", Source: "overlay", Options: []string{"upperdir=" + dir, "lowerdir=" + below}}}
	}
	got, err := c.Local.Client.DiffService().Apply(ctx, desc, into, diff.WithSyncFs(true))
	if err != nil {
		return fmt.Errorf("unpack layer %s again: %w", desc.Digest, err)
	}
	if got.Digest.Algorithm() != digest.Canonical {
		return fmt.Errorf("unpack layer %s again: it has digest %s", desc.Digest, got.Digest)
	}
	return nil
}
