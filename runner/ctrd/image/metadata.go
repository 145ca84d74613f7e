package image

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/bounded"
)

// checkMetadata refuses what is too large to be read into memory, whatever it says that it is. parts are those of d; the first
// part of a manifest is its config (images.Children), and a config has any type.
func checkMetadata(d ocispec.Descriptor, parts ...ocispec.Descriptor) error {
	if (images.IsManifestType(d.MediaType) || images.IsIndexType(d.MediaType) || images.IsConfigType(d.MediaType)) && d.Size > bounded.MaxMetadata {
		return tooLarge("the manifest or config", d)
	}
	if images.IsManifestType(d.MediaType) && len(parts) > 0 && parts[0].Size > bounded.MaxMetadata {
		return tooLarge("the config", parts[0])
	}
	return nil
}

func tooLarge(what string, d ocispec.Descriptor) error {
	return fmt.Errorf("%s %s of the image has %d bytes, of which %d are allowed: %w", what, d.Digest, d.Size, bounded.MaxMetadata, errdefs.ErrResourceExhausted)
}

// boundedMetadata keeps a pull from fetching what would then be read into memory.
func boundedMetadata(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if err := checkMetadata(d); err != nil {
			return nil, err
		}
		parts, err := next.Handle(ctx, d)
		if err == nil {
			err = checkMetadata(d, parts...)
		}
		return parts, err
	})
}

// readMetadata is content.ReadBlob for an index, a manifest or a config.
func readMetadata(ctx context.Context, store content.Provider, d ocispec.Descriptor) ([]byte, error) {
	if err := bounded.Check(ctx, store, d); err != nil {
		return nil, err
	}
	return content.ReadBlob(ctx, store, d)
}

// checkImage is checkMetadata for an image whose content is here, however it came.
func checkImage(ctx context.Context, store content.Provider, target ocispec.Descriptor) error {
	seen := map[digest.Digest]bool{}
	return images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if seen[d.Digest] || !images.IsManifestType(d.MediaType) && !images.IsIndexType(d.MediaType) {
			return nil, checkMetadata(d)
		}
		seen[d.Digest] = true
		if here, err := sized(ctx, store, &d); !here || err != nil {
			return nil, err // not here: of another platform
		}
		if err := checkMetadata(d); err != nil {
			return nil, err
		}
		parts, err := images.Children(ctx, store, d)
		if err == nil && images.IsManifestType(d.MediaType) && len(parts) > 0 { // the config, of any type
			if err = bounded.Check(ctx, store, parts[0]); errdefs.IsNotFound(err) {
				err = nil
			}
		}
		return parts, err
	}), target)
}

// sized gives a descriptor the size that its content really has, if that is here.
func sized(ctx context.Context, store content.Provider, d *ocispec.Descriptor) (here bool, err error) {
	r, err := store.ReaderAt(ctx, *d)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.Size = r.Size()
	return true, r.Close()
}
