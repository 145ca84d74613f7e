package embed

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxMetadata is that of package image.
const maxMetadata = 8 << 20

// boundedContent keeps containerd's client from reading indexes, manifests and configs of any size into memory, as it does when it
// imports archives.
type boundedContent struct{ content.Store }

// ReaderAt implements content.Provider.
func (b boundedContent) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := b.Store.ReaderAt(ctx, d)
	if err != nil || r.Size() <= maxMetadata || !images.IsManifestType(d.MediaType) && !images.IsIndexType(d.MediaType) && !images.IsConfigType(d.MediaType) {
		return r, err
	}
	size := r.Size()
	_ = r.Close()
	return nil, fmt.Errorf("%s has %d bytes, of which %d are allowed in a %s: %w", d.Digest, size, maxMetadata, d.MediaType, errdefs.ErrResourceExhausted)
}
