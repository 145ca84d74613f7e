package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image/layer"
	"monopod/runner/ctrd/image/local"
)

// checker compares the content of images with their digests and replaces damaged blobs. pause, in its methods, is called between blocks of
// data; its error ends the check.
type checker struct {
	*Config
	// replaced reports whether a damaged blob was replaced.
	replaced bool
}

// blobs checks manifests, config and layers of an image, in this order: each names the next.
func (c *checker) blobs(ctx context.Context, rec images.Image, pause func() error) error {
	if err := c.manifests(ctx, rec, rec.Target, pause); err != nil {
		return err
	}
	m, err := images.Manifest(ctx, c.Local.Client.ContentStore(), rec.Target, platforms.Default())
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, desc := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if err := c.blob(ctx, rec, desc, pause); err != nil {
			return err
		}
	}
	return nil
}

// manifests checks a manifest, or an index and the manifests of it that exist.
func (c *checker) manifests(ctx context.Context, rec images.Image, desc ocispec.Descriptor, pause func() error) error {
	if err := c.blob(ctx, rec, desc, pause); err != nil || !images.IsIndexType(desc.MediaType) {
		return err
	}
	b, err := local.ReadMetadata(ctx, c.Local.Client.ContentStore(), desc)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("index %s: %w", desc.Digest, err)
	}
	for _, m := range index.Manifests {
		if err := c.blob(ctx, rec, m, pause); err != nil {
			return err
		}
	}
	return nil
}

// blob checks a blob and replaces it if it is damaged. A missing blob is not an error.
func (c *checker) blob(ctx context.Context, rec images.Image, desc ocispec.Descriptor, pause func() error) error {
	var damage error
	for range 2 {
		damage = c.verify(ctx, desc, pause)
		if damage == nil || errdefs.IsNotFound(damage) {
			return nil
		}
		if !errors.Is(damage, errDamaged) {
			return damage
		}
		if err := c.replace(ctx, rec, desc, damage); err != nil {
			return err
		}
	}
	return damage
}

// errDamaged reports a blob that does not match its digest.
var errDamaged = errors.New("damaged")

// verify compares a blob with its digest.
func (c *checker) verify(ctx context.Context, desc ocispec.Descriptor, pause func() error) error {
	store := c.Local.Client.ContentStore()
	r, err := store.ReaderAt(ctx, desc)
	if errdefs.IsNotFound(err) {
		if _, known := store.Info(ctx, desc.Digest); known == nil {
			return fmt.Errorf("blob %s is missing: %w", desc.Digest, errDamaged)
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	v := desc.Digest.Verifier()
	buf := make([]byte, layer.BlockSize)
	from := content.NewReader(r)
	for {
		n, err := from.Read(buf)
		_, _ = v.Write(buf[:n]) // never fails
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("blob %s: %w: %w", desc.Digest, errDamaged, err)
		}
		if err := pause(); err != nil {
			return err
		}
	}
	if !v.Verified() {
		return fmt.Errorf("blob %s (%d bytes) is %w", desc.Digest, r.Size(), errDamaged)
	}
	return nil
}

// replace fetches a damaged blob again, and reports the result to OnDamage.
func (c *checker) replace(ctx context.Context, rec images.Image, desc ocispec.Descriptor, damage error) error {
	from, err := c.refetch(ctx, rec.Name, desc)
	text := damage.Error()
	if err == nil {
		text += "; it was fetched again from " + from
		c.replaced = true
		c.Local.ForgetDescriptions()
	}
	c.OnDamage(rec.Name, text, err)
	if err != nil {
		return fmt.Errorf("%w, and cannot be fetched again: %v", damage, err) //nolint:errorlint // not found at the registry does not mean that the image is missing
	}
	return nil
}
