// Package local reads, unpacks and removes the images that are on this machine, through the client of containerd. It owns the cache of
// their descriptions; it must not contact a registry, and it trusts the content that it reads (package repair checks it).
package local

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image"
)

// Config of a Store.
type Config struct {
	Client      *client.Client
	Snapshotter string
	// Disk is watched while images are written. Without a Dir it is not.
	Disk bounded.Disk
	// OnFull is called when the disk was too full for an image, with the number of bytes that the image may need. It must not block.
	OnFull func(bytes int64)
	Log    *slog.Logger
}

// Store accesses the images of this machine. It is safe for concurrent use.
type Store struct {
	Config
	// removal is locked while an image is removed, and read-locked while one is inspected.
	removal sync.RWMutex

	mu sync.Mutex
	// descriptions are cached by the digest of the target, which determines the content of an image.
	descriptions map[string]*description
}

// New returns a Store on the client's default namespace, or on that of the contexts it is called with. It does no I/O.
func New(cfg Config) *Store {
	return &Store{Config: cfg, descriptions: map[string]*description{}}
}

// Namespaced adds the client's default namespace to a context without one.
func (s *Store) Namespaced(ctx context.Context) context.Context {
	if _, ok := namespaces.Namespace(ctx); ok {
		return ctx
	}
	return namespaces.WithNamespace(ctx, s.Client.DefaultNamespace())
}

// Record returns the image record of a name. A reference by digest also matches an image that has the digest under other names only, for
// example one that was preloaded.
func (s *Store) Record(ctx context.Context, name string) (images.Image, error) {
	store := s.Client.ImageService()
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

// Size returns the size of the content of an image in bytes, or 0 if it is not known.
func (s *Store) Size(ctx context.Context, name string) int64 {
	rec, err := s.Record(ctx, name)
	if err != nil {
		return 0
	}
	n, err := client.NewImage(s.Client, rec).Size(ctx)
	if err != nil {
		return 0
	}
	return n
}

// Remove removes an image with all its names, and the content that it shares with no other image. It calls needed while no Inspect can
// find the image, and returns image.ErrNeeded if that reports true.
func (s *Store) Remove(ctx context.Context, dig string, needed func() bool) error {
	ctx = s.Namespaced(ctx)
	s.removal.Lock()
	defer s.removal.Unlock()
	if needed() {
		return image.ErrNeeded
	}
	store := s.Client.ImageService()
	recs, err := store.List(ctx, fmt.Sprintf("target.digest==%q", dig))
	if err != nil {
		return fmt.Errorf("remove image %s: %w", dig, err)
	}
	for n, rec := range recs {
		var opts []images.DeleteOpt
		if n == len(recs)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		if err := store.Delete(ctx, rec.Name, opts...); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove image %s: %w", rec.Name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.descriptions, dig)
	return nil
}

// ForgetDescriptions empties the cache, after content was replaced.
func (s *Store) ForgetDescriptions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.descriptions)
}
