package local

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

// checkMetadata rejects an index, manifest or config that is too large to be read into memory. children are those of d. The first child of
// a manifest is its config, which may have any media type.
func checkMetadata(d ocispec.Descriptor, children ...ocispec.Descriptor) error {
	if (images.IsManifestType(d.MediaType) || images.IsIndexType(d.MediaType) || images.IsConfigType(d.MediaType)) && d.Size > bounded.MaxMetadata {
		return tooLarge("the manifest or config", d)
	}
	if images.IsManifestType(d.MediaType) && len(children) > 0 && children[0].Size > bounded.MaxMetadata {
		return tooLarge("the config", children[0])
	}
	return nil
}

func tooLarge(what string, d ocispec.Descriptor) error {
	return fmt.Errorf("%s %s of the image has %d bytes, the limit is %d: %w", what, d.Digest, d.Size, bounded.MaxMetadata, errdefs.ErrResourceExhausted)
}

// BoundedMetadata makes a pull fail before it fetches metadata that is too large to be read into memory.
func BoundedMetadata(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if err := checkMetadata(d); err != nil {
			return nil, err
		}
		children, err := next.Handle(ctx, d)
		if err == nil {
			err = checkMetadata(d, children...)
		}
		return children, err
	})
}

// ReadMetadata is content.ReadBlob for an index, a manifest or a config, with a limit on its size.
func ReadMetadata(ctx context.Context, store content.Provider, d ocispec.Descriptor) ([]byte, error) {
	if err := bounded.Check(ctx, store, d); err != nil {
		return nil, err
	}
	return content.ReadBlob(ctx, store, d)
}

// checkImage applies checkMetadata to the content of an image, with the real sizes instead of those in the descriptors.
func checkImage(ctx context.Context, store content.Provider, target ocispec.Descriptor) error {
	seen := map[digest.Digest]bool{}
	return images.Walk(ctx, images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if seen[d.Digest] || !images.IsManifestType(d.MediaType) && !images.IsIndexType(d.MediaType) {
			return nil, checkMetadata(d)
		}
		seen[d.Digest] = true
		if exists, err := setRealSize(ctx, store, &d); !exists || err != nil {
			return nil, err // missing: of another platform
		}
		if err := checkMetadata(d); err != nil {
			return nil, err
		}
		children, err := images.Children(ctx, store, d)
		if err == nil && images.IsManifestType(d.MediaType) && len(children) > 0 { // the config, of any type
			if err = bounded.Check(ctx, store, children[0]); errdefs.IsNotFound(err) {
				err = nil
			}
		}
		return children, err
	}), target)
}

// setRealSize sets the size of a descriptor to that of its content. It reports whether the content exists.
func setRealSize(ctx context.Context, store content.Provider, d *ocispec.Descriptor) (exists bool, err error) {
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
