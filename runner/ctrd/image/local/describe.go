package local

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image"
)

// description is the part of an image that its content determines. It never changes, so it is read once.
type description struct {
	id      string
	chainID string
	config  ocispec.ImageConfig

	users users
}

// Inspect returns an image of this machine, and unpacks it if necessary. It looks up record and snapshot in containerd each time, because
// other clients may remove or replace them. The error matches errdefs.ErrNotFound if the image, or a part of it, is missing.
func (s *Store) Inspect(ctx context.Context, name string) (*image.Image, error) {
	s.removal.RLock()
	defer s.removal.RUnlock()
	rec, err := s.Record(ctx, name)
	if err != nil {
		return nil, err
	}
	d, err := s.describe(ctx, rec)
	if err != nil {
		return nil, err
	}
	_, err = s.Client.SnapshotService(s.Snapshotter).Stat(ctx, d.chainID)
	if errdefs.IsNotFound(err) {
		// Unpacking is local work that ends by itself. It is not cancelled, because another unpacking of the same layers may
		// wait for it.
		err = s.unpack(context.WithoutCancel(ctx), rec)
	}
	if err != nil {
		return nil, err
	}
	return &image.Image{
		Name: name, ID: d.id, Digest: rec.Labels[image.LabelPulled], Target: rec.Target.Digest.String(), ChainID: d.chainID, Config: d.config,
	}, nil
}

// describe reads manifest and config of an image, or returns them from the cache.
func (s *Store) describe(ctx context.Context, rec images.Image) (*description, error) {
	key := rec.Target.Digest.String()
	s.mu.Lock()
	d := s.descriptions[key]
	s.mu.Unlock()
	if d != nil {
		return d, nil
	}
	if err := checkImage(ctx, s.Client.ContentStore(), rec.Target); err != nil {
		return nil, err
	}
	img := client.NewImage(s.Client, rec)
	desc, err := img.Config(ctx)
	if err != nil {
		return nil, err
	}
	blob, err := ReadMetadata(ctx, s.Client.ContentStore(), desc)
	if err != nil {
		return nil, err
	}
	var conf ocispec.Image
	if err := json.Unmarshal(blob, &conf); err != nil {
		return nil, fmt.Errorf("image config %s: %w", desc.Digest, err)
	}
	diffs, err := img.RootFS(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkLayers(ctx, img, rec, len(diffs)); err != nil {
		return nil, err
	}
	d = &description{id: desc.Digest.String(), chainID: identity.ChainID(diffs).String(), config: conf.Config}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.descriptions[key] = d
	return d, nil
}

// checkLayers returns image.ErrArtifact for content without a file system: its config lists no layers, but its manifest does. It would be
// unpacked to an empty directory, or to an error about layers.
func checkLayers(ctx context.Context, img client.Image, rec images.Image, diffs int) error {
	if diffs > 0 {
		return nil
	}
	manifest, err := images.Manifest(ctx, img.ContentStore(), rec.Target, img.Platform())
	if err == nil && len(manifest.Layers) > 0 {
		err = image.ErrArtifact
	}
	return err
}

// unpack creates the snapshots of an image.
func (s *Store) unpack(ctx context.Context, rec images.Image) (err error) {
	ctx, done, err := s.Writing(ctx, s.Size(ctx, rec.Name))
	if err != nil {
		return err
	}
	defer func() { err = done(err) }()
	img := client.NewImage(s.Client, rec)
	if err := img.Unpack(ctx, s.Snapshotter, SyncedUnpack()); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// SyncedUnpack makes unpacking wait until the files are on the disk. Without it a power cut can leave empty files in an image that counts as
// unpacked.
func SyncedUnpack() client.UnpackOpt {
	return client.WithUnpackApplyOpts(diff.WithSyncFs(true))
}
