package image

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"monopod/runner/ctrd/bounded"
)

// writing returns a context for writing content and snapshots, which ends when the disk gets too full. done must be called with how it
// went: after an error what was written is removed at once, and it returns why.
func (s *Store) writing(ctx context.Context) (_ context.Context, done func(error) error, err error) {
	service := s.client.LeasesService()
	l, err := service.Create(ctx, leases.WithRandomID(), leases.WithExpiration(24*time.Hour))
	if err != nil {
		return ctx, nil, fmt.Errorf("keep what is written of the image: %w", err)
	}
	ctx, unwatch := s.cfg.Disk.Watch(leases.WithLease(ctx, l.ID))
	return ctx, func(err error) error {
		unwatch()
		after := context.WithoutCancel(ctx)
		var opts []leases.DeleteOpt
		if err != nil {
			err = bounded.Cause(ctx, err)
			s.abort(after, l)
			opts = append(opts, leases.SynchronousDelete)
		}
		if derr := service.Delete(after, l, opts...); derr != nil && !errdefs.IsNotFound(derr) {
			s.cfg.Log.Warn("what was written of an image is kept for a day", "err", derr)
		}
		return err
	}, nil
}
