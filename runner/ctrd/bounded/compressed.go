package bounded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/typeurl/v2"
	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxWindow is the maximum memory that zstd data may require for decompression: that of level 20, four times what image builders
// use.
const maxWindow = 32 << 20

// Decompress is compression.DecompressStream with a limit for the memory that the data require, which is 512 MiB otherwise.
func Decompress(from io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(from, 32<<10)
	head, _ := in.Peek(10) // the next read repeats the error
	if compression.DetectCompression(head) != compression.Zstd {
		return compression.DecompressStream(in)
	}
	r, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return &zstdReader{from: r}, nil
}

// zstdReader explains refusals. It hides the other methods of a Decoder, which io.Copy would prefer.
type zstdReader struct{ from *zstd.Decoder }

// Read implements io.Reader.
func (r *zstdReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("zstd data that need more than %d MiB of memory: compress them again, at level 20 or below and without a longer window: %w", maxWindow>>20, err)
	}
	return n, err
}

// Close implements io.Closer.
func (r *zstdReader) Close() error {
	r.from.Close()
	return nil
}

var registered sync.Once //nolint:gochecknoglobals // it guards a global registration

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
