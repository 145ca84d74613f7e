// Package bounded protects the memory and the disk of the machine from images and archives of them: it limits what containerd's
// client reads into memory, what archives contain, and how full a disk gets. It must not know which images are wanted.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/internal/jsonlimit"
)

const (
	// MaxMetadata is the maximum size of an index, a manifest or a config of an image, which are read into memory and decoded.
	// Registries accept no manifests of more than 4 MiB.
	MaxMetadata = 8 << 20
	// maxValues is the maximum number of values in JSON: a value of two bytes can take more than a hundred in memory.
	maxValues = 50_000
	// fewBytes is the size below which JSON cannot have too many values.
	fewBytes = maxValues
)

// Store limits the size of indexes, manifests and configs: containerd's client reads them into memory for import and unpacking.
func Store(next content.Store) content.Store { return store{next} }

type store struct{ content.Store }

// ReaderAt implements content.Provider.
func (s store) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := s.Store.ReaderAt(ctx, d)
	if err == nil && d.MediaType == "" && ctx.Value(importing{}) != nil && isZstd(r) {
		return emptyZstd{strings.NewReader(emptyFrame)}, r.Close()
	}
	if err != nil || !images.IsManifestType(d.MediaType) && !images.IsIndexType(d.MediaType) && !images.IsConfigType(d.MediaType) {
		return r, err
	}
	if err := check(r, d); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

type importing struct{}

// Importing returns a context for Client.Import. The client opens a layer without a type to detect its compression; Store hides
// zstd data from it, because containerd's decompressor would allocate all the memory that they require.
func Importing(ctx context.Context) context.Context {
	return context.WithValue(ctx, importing{}, true)
}

// emptyFrame is a zstd frame without content.
const emptyFrame = "\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00"

func isZstd(r content.ReaderAt) bool {
	var head [10]byte
	n, _ := r.ReadAt(head[:], 0) // the next read repeats the error
	return compression.DetectCompression(head[:n]) == compression.Zstd
}

// emptyZstd is a content.ReaderAt.
type emptyZstd struct{ *strings.Reader }

// Close implements io.Closer.
func (emptyZstd) Close() error { return nil }

// Check refuses a blob that is too large, or has too many values, to be decoded as JSON, whatever its type.
func Check(ctx context.Context, p content.Provider, d ocispec.Descriptor) error {
	r, err := p.ReaderAt(ctx, d)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return check(r, d)
}

func check(r content.ReaderAt, d ocispec.Descriptor) error {
	size := r.Size()
	if size > MaxMetadata {
		return fmt.Errorf("%s has %d bytes, the limit of a manifest or config is %d: %w", d.Digest, size, MaxMetadata, errdefs.ErrResourceExhausted)
	}
	if size <= fewBytes {
		return nil
	}
	if err := countValues(io.NewSectionReader(r, 0, size)); err != nil {
		return fmt.Errorf("%s: %w", d.Digest, err)
	}
	return nil
}

// countValues refuses JSON with too many values. Strings do not count, because labels of images contain JSON.
func countValues(r io.Reader) error {
	_, err := io.Copy(io.Discard, jsonlimit.NewReader(r, maxValues))
	if errors.Is(err, jsonlimit.ErrTooMany) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrResourceExhausted)
	}
	return err
}
