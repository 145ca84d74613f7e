package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	remoteserrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"monopod/runner/ctrd/bounded"
)

// LabelPull marks leases that keep what has come of a pull until it is complete. Its value is the image.
const LabelPull = "monopod.dev/pull"

// keepPartial is how long what has come of a pull that failed is kept for the next attempt.
const keepPartial = 24 * time.Hour

// resumable returns a context whose content is kept, over restarts too, until done is called without an error, or
// keepPartial has passed. What has come under the same key before is there, so that a pull goes on where it was cut off.
func (s *Store) resumable(ctx context.Context, key, name string) (_ context.Context, done func(error), err error) {
	sum := sha256.Sum256([]byte(key))
	service, l := s.client.LeasesService(), leases.Lease{ID: "monopod-pull-" + hex.EncodeToString(sum[:12])}
	if err := s.takeLease(ctx, l, name); err != nil {
		return ctx, nil, fmt.Errorf("keep what comes of the image: %w", err)
	}
	return leases.WithLease(ctx, l.ID), func(err error) {
		ctx := context.WithoutCancel(ctx)
		var opts []leases.DeleteOpt
		if err != nil {
			if !spoiled(err) {
				return
			}
			s.abort(ctx, l)
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := service.Delete(ctx, l, opts...); err != nil && !errdefs.IsNotFound(err) {
			s.cfg.Log.Warn("what came of an image is kept for a day", "image", name, "err", err)
		}
	}, nil
}

// abort removes what has come under a lease of content that is not complete, so that the next attempt does not find it.
func (s *Store) abort(ctx context.Context, l leases.Lease) {
	parts, err := s.client.LeasesService().ListResources(ctx, l)
	for _, p := range parts {
		if p.Type == "ingests" {
			err = errors.Join(err, s.client.ContentStore().Abort(ctx, p.ID))
		}
	}
	if err != nil && !errdefs.IsNotFound(err) {
		s.cfg.Log.Debug("what came of an image in vain is left to the garbage collector", "err", err)
	}
}

// takeLease makes the lease, or takes the one that a pull that failed has left.
func (s *Store) takeLease(ctx context.Context, l leases.Lease, name string) error {
	service := s.client.LeasesService()
	opts := []leases.Opt{leases.WithID(l.ID), leases.WithLabel(LabelPull, name), leases.WithExpiration(2 * keepPartial)}
	_, err := service.Create(ctx, opts...)
	if !errdefs.IsAlreadyExists(err) {
		return err
	}
	left, err := service.List(ctx, fmt.Sprintf("id==%q", l.ID))
	if err != nil || len(left) == 1 && Resumable(left[0], time.Now()) {
		return err
	}
	if err := service.Delete(ctx, l, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	_, err = service.Create(ctx, opts...)
	return err
}

// spoiled says that what came is not what was asked for, or that the registry cannot go on from there: to go on with it
// would be in vain.
func spoiled(err error) bool {
	if s, ok := errors.AsType[remoteserrors.ErrUnexpectedStatus](err); ok && s.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return true
	}
	if errors.Is(err, bounded.ErrFull) {
		return true // it would keep the disk full
	}
	return errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err) || errdefs.IsOutOfRange(err)
}

// Resumable says that a lease keeps what has come of a pull, and may do so still.
func Resumable(l leases.Lease, now time.Time) bool {
	age := now.Sub(l.CreatedAt)
	return l.Labels[LabelPull] != "" && age < keepPartial && age > -keepPartial
}

// DropPartial gives up what has come of pulls that are not under way now.
func (s *Store) DropPartial(ctx context.Context) error {
	ctx = s.namespaced(ctx)
	service := s.client.LeasesService()
	left, err := service.List(ctx, fmt.Sprintf("labels.%q", LabelPull))
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range left {
		if len(s.running.list(l.Labels[LabelPull])) > 0 {
			continue
		}
		if err := service.Delete(ctx, l, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
