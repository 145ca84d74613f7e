package image

import (
	"context"
	"errors"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// After a power cut images are looked at before they are used, see healer. Here is what happens to one that turns out to
// be damaged at another time, because something has emptied files of the content store: its blobs are compared with their
// digests, those that are damaged are fetched again, and what failed is tried once more.

// repaired reports whether err, with which something failed that reads the content of an image, was due to damaged blobs
// that are replaced now. An image that is as it should be costs reading it; nothing is compared after an error that has
// another reason for sure.
func (s *Store) repaired(ctx context.Context, rec images.Image, err error) bool {
	if err == nil || ctx.Err() != nil || errors.Is(err, unix.ENOSPC) || errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsResourceExhausted(err) {
		return false
	}
	select { // one after the other: images have blobs in common
	case s.repairing <- struct{}{}:
		defer func() { <-s.repairing }()
	case <-ctx.Done():
		return false
	}
	replaced := false
	h := newHealer(s, Doubt{Blobs: s.cfg.Blobs, Notice: func(name, damage string, err error) {
		replaced = replaced || err == nil
		s.cfg.OnDamage(name, damage, err)
	}})
	if err := h.blobs(ctx, rec, func() error { return ctx.Err() }); err != nil {
		s.cfg.Log.Warn("an image is damaged", "image", rec.Name, "err", err)
		return false
	}
	return replaced
}

// blobs looks at manifests, config and layers of an image, in this order: each says what the next is to be.
func (h *healer) blobs(ctx context.Context, rec images.Image, rest func() error) error {
	if err := h.manifests(ctx, rec, rec.Target, rest); err != nil {
		return err
	}
	m, err := images.Manifest(ctx, h.s.client.ContentStore(), rec.Target, platforms.Default())
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, desc := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if err := h.blob(ctx, rec, desc, rest); err != nil {
			return err
		}
	}
	return nil
}
