package image

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// labelPulled marks image records that came from a registry; its value is the name@digest it gave.
const labelPulled = "monopod.dev/repo-digest"

// description is what an image's content says. It never changes, so it is read once.
type description struct {
	id      string
	chainID string
	config  ocispec.ImageConfig

	users userFiles
}

// present returns an image that is here. It asks containerd each time whether record and snapshot still
// exist, as others may remove or replace them; both are look-ups by key. An image that is here but not
// unpacked is unpacked. The error matches errdefs.ErrNotFound when the image, or a part of it, is not here.
func (s *Store) present(ctx context.Context, name string) (*Image, error) {
	if err := s.ensureSound(ctx, name); err != nil {
		return nil, err
	}
	img, err := s.inspect(ctx, name)
	if err == nil {
		return img, nil
	}
	if rec, rerr := s.record(ctx, name); rerr != nil || !s.repaired(ctx, rec, err) {
		return nil, err
	}
	return s.inspect(ctx, name)
}

// inspect is present for an image whose content is taken for sound.
func (s *Store) inspect(ctx context.Context, name string) (*Image, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	rec, err := s.record(ctx, name)
	if err != nil {
		return nil, err
	}
	d, err := s.describe(ctx, rec)
	if err != nil {
		return nil, err
	}
	_, err = s.client.SnapshotService(s.cfg.Snapshotter).Stat(ctx, d.chainID)
	if errdefs.IsNotFound(err) {
		// Local work that ends by itself: when it is cut off, somebody else's unpacking of the same layers
		// may wait for it.
		err = s.unpack(context.WithoutCancel(ctx), rec)
	}
	if err != nil {
		return nil, err
	}
	return &Image{Name: name, ID: d.id, Digest: rec.Labels[labelPulled], Target: rec.Target.Digest.String(), ChainID: d.chainID, Config: d.config}, nil
}

// record finds the image record of a name. A reference by digest also finds an image that has the digest but
// only other names, e.g. one that was preloaded.
func (s *Store) record(ctx context.Context, name string) (images.Image, error) {
	store := s.client.ImageService()
	rec, err := store.Get(ctx, name)
	if !errdefs.IsNotFound(err) {
		return rec, err
	}
	named, perr := reference.ParseNormalizedNamed(name)
	if perr != nil {
		return rec, err
	}
	dig, ok := named.(reference.Canonical)
	if !ok {
		return rec, err
	}
	list, lerr := store.List(ctx, fmt.Sprintf("target.digest==%q", dig.Digest()))
	if lerr != nil {
		return rec, lerr
	}
	if len(list) == 0 {
		return rec, err
	}
	return list[0], nil
}

// describe reads manifest and config of an image, once.
func (s *Store) describe(ctx context.Context, rec images.Image) (*description, error) {
	key := rec.Target.Digest.String()
	s.mu.Lock()
	d := s.known[key]
	s.mu.Unlock()
	if d != nil {
		return d, nil
	}
	if err := checkImage(ctx, s.client.ContentStore(), rec.Target); err != nil {
		return nil, err
	}
	img := client.NewImage(s.client, rec)
	desc, err := img.Config(ctx)
	if err != nil {
		return nil, err
	}
	blob, err := readMetadata(ctx, s.client.ContentStore(), desc)
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
	d = &description{id: desc.Digest.String(), chainID: identity.ChainID(diffs).String(), config: conf.Config}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[key] = d
	return d, nil
}

// unpack makes the snapshots of an image whose content is here.
func (s *Store) unpack(ctx context.Context, rec images.Image) (err error) {
	ctx, done, err := s.writing(ctx, s.size(ctx, rec.Name))
	if err != nil {
		return err
	}
	defer func() { err = done(err) }()
	img := client.NewImage(s.client, rec)
	if err := img.Unpack(ctx, s.cfg.Snapshotter, synced()); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// synced makes unpacking wait until the files are on the disk. Otherwise a power cut leaves empty files in an
// image that counts as unpacked, for ever.
func synced() client.UnpackOpt {
	return client.WithUnpackApplyOpts(diff.WithSyncFs(true))
}
