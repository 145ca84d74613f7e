package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"monopod/runner/ctrd/bounded"
)

// unpackedRatio is how many bytes an image is expected to take, for each one that is known of it before.
const unpackedRatio = 3

// full reports that the disk was too full for an image of which so many bytes are known, if that is why it failed.
func (s *Store) full(err error, known int64) {
	if errors.Is(err, bounded.ErrFull) {
		s.cfg.OnFull(unpackedRatio * known)
	}
}

// writing returns a context for writing an image of which so many bytes are known, which ends when the disk gets too full. The caller must call done with
// the result: after an error it removes what was written, at once, and returns the cause.
func (s *Store) writing(ctx context.Context, known int64) (_ context.Context, done func(error) error, err error) {
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
			s.full(err, known)
			s.abort(after, l)
			opts = append(opts, leases.SynchronousDelete)
		}
		if derr := service.Delete(after, l, opts...); derr != nil && !errdefs.IsNotFound(derr) {
			s.cfg.Log.Warn("what was written of an image is kept for a day", "err", derr)
		}
		return err
	}, nil
}
