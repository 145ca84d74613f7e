// Package repair detects and repairs damaged images: blobs that differ from their digests, and unpacked files that differ from their layers.
// It fetches damaged blobs again from archives and registries and unpacks layers again; it must not pull images that are missing.
//
// Goroutines: the caller of Run, which checks all images in the background after a power loss.
package repair

import (
	"context"
	"errors"
	"log/slog"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/local"
	"monopod/runner/ctrd/image/registry"
)

// Config of a Repairer.
type Config struct {
	Local    *local.Store
	Registry *registry.Client
	// ArchiveDirs have image archives, in which blobs are looked for before the registry is contacted.
	ArchiveDirs []string
	// ContentDir is the directory of containerd's content store, which has blobs/<algorithm>/<hex>. Empty: damaged blobs cannot
	// be replaced.
	ContentDir string
	// Doubt makes images be checked before they are used. Nil: images are checked only after errors.
	Doubt *Doubt
	// OnDamage is called for each damage. err is why it could not be repaired, or nil.
	OnDamage func(image, damage string, err error)
	Log      *slog.Logger
}

// Repairer returns images of this machine, repaired if necessary. It is safe for concurrent use.
type Repairer struct {
	Config
	doubtful *doubtful // nil: no image is in doubt
	// checking holds a value while an image is checked after an error. Images share blobs, so one is checked at a time.
	checking chan struct{}
}

// New returns a Repairer. It does no I/O.
func New(cfg Config) *Repairer {
	r := &Repairer{Config: cfg, checking: make(chan struct{}, 1)}
	if cfg.Doubt != nil {
		r.doubtful = newDoubtful(&r.Config)
	}
	return r
}

// Present returns an image of this machine. An image that is in doubt is checked first; if reading the image fails, its blobs are checked and
// it is read again. The error matches errdefs.ErrNotFound if the image, or a part of it, is missing.
func (r *Repairer) Present(ctx context.Context, name string) (*image.Image, error) {
	if r.doubtful != nil {
		if err := r.doubtful.checkBeforeUse(ctx, name); err != nil {
			return nil, err
		}
	}
	img, err := r.Local.Inspect(ctx, name)
	if err == nil {
		return img, nil
	}
	if rec, rerr := r.Local.Record(ctx, name); rerr != nil || !r.AfterError(ctx, rec, err) {
		return nil, err
	}
	return r.Local.Inspect(ctx, name)
}

// Run checks all images that are in doubt, and returns when none is or ctx ends.
func (r *Repairer) Run(ctx context.Context) {
	if r.doubtful != nil {
		r.doubtful.run(r.Local.Namespaced(ctx))
	}
}

// AfterError checks the blobs of an image after reading or unpacking it failed with err. It reports whether damaged blobs were replaced, so
// that the operation should be tried again. Errors that damage cannot cause are not checked, because a check reads the whole image.
func (r *Repairer) AfterError(ctx context.Context, rec images.Image, err error) bool {
	if err == nil || ctx.Err() != nil || errors.Is(err, image.ErrArtifact) || errors.Is(err, unix.ENOSPC) || errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsResourceExhausted(err) {
		return false
	}
	select {
	case r.checking <- struct{}{}:
		defer func() { <-r.checking }()
	case <-ctx.Done():
		return false
	}
	c := &checker{Config: &r.Config}
	if err := c.blobs(ctx, rec, func() error { return ctx.Err() }); err != nil {
		r.Log.Warn("an image is damaged", "image", rec.Name, "err", err)
		return false
	}
	return c.replaced
}
