package bounded

import (
	"bufio"
	"context"
	"io"
	"sync"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/typeurl/v2"
	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxWindow is the most memory that zstd may demand of who decompresses: what the highest level of the common builders of images takes.
const maxWindow = 32 << 20

// Decompress is compression.DecompressStream, with a limit for the memory that the compressed data demand: 512 MiB otherwise.
func Decompress(from io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(from, 32<<10)
	head, _ := in.Peek(10) // an error comes again with the next read
	if compression.DetectCompression(head) != compression.Zstd {
		return compression.DecompressStream(in)
	}
	r, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return r.IOReadCloser(), nil
}

var registered sync.Once //nolint:gochecknoglobals // so is what it registers with

// RegisterLayers makes the containerd in this process use Decompress for layers.
func RegisterLayers() {
	registered.Do(func() { diff.RegisterProcessor(layers) })
}

// layers is a diff.Handler.
func layers(ctx context.Context, mediaType string) (diff.StreamProcessorInit, bool) {
	if kind, err := images.DiffCompression(ctx, mediaType); err != nil || kind == "" {
		return nil, false
	}
	return func(_ context.Context, from diff.StreamProcessor, _ map[string]typeurl.Any) (diff.StreamProcessor, error) {
		r, err := Decompress(from)
		if err != nil {
			return nil, err
		}
		return layer{r}, nil
	}, true
}

type layer struct{ io.ReadCloser }

// MediaType implements diff.StreamProcessor.
func (layer) MediaType() string { return ocispec.MediaTypeImageLayer }
