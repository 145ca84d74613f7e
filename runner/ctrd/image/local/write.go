package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"monopod/runner/ctrd/bounded"
)

// unpackedRatio is the estimated total size of an image per byte of its archive or compressed layers.
const unpackedRatio = 3

// ReportFull calls OnFull if err means that the disk was too full for an image with a known size in bytes.
func (s *Store) ReportFull(err error, known int64) {
	if errors.Is(err, bounded.ErrFull) {
		s.OnFull(unpackedRatio * known)
	}
}

// Writing returns a context for writing an image with a known size in bytes. It is cancelled when the disk gets too full. The caller must
// call done with the result: after an error it removes what was written at once, and returns the cause.
func (s *Store) Writing(ctx context.Context, known int64) (_ context.Context, done func(error) error, err error) {
	service := s.Client.LeasesService()
	l, err := service.Create(ctx, leases.WithRandomID(), leases.WithExpiration(24*time.Hour))
	if err != nil {
		return ctx, nil, fmt.Errorf("create a lease for the image: %w", err)
	}
	ctx, unwatch := s.Disk.Watch(leases.WithLease(ctx, l.ID))
	return ctx, func(err error) error {
		unwatch()
		after := context.WithoutCancel(ctx)
		var opts []leases.DeleteOpt
		if err != nil {
			err = bounded.Cause(ctx, err)
			s.ReportFull(err, known)
			s.AbortIngests(after, l)
			opts = append(opts, leases.SynchronousDelete)
		}
		if derr := service.Delete(after, l, opts...); derr != nil && !errdefs.IsNotFound(derr) {
			s.Log.Warn("content of an image stays on the disk for a day: its lease cannot be deleted", "err", derr)
		}
		return err
	}, nil
}

// AbortIngests removes the incomplete content of a lease, so that the next attempt does not resume it.
func (s *Store) AbortIngests(ctx context.Context, l leases.Lease) {
	resources, err := s.Client.LeasesService().ListResources(ctx, l)
	for _, r := range resources {
		if r.Type == "ingests" {
			err = errors.Join(err, s.Client.ContentStore().Abort(ctx, r.ID))
		}
	}
	if err != nil && !errdefs.IsNotFound(err) {
		s.Log.Debug("incomplete content of an image is left to the garbage collector", "err", err)
	}
}
