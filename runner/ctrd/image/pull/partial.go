package pull

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
	"monopod/runner/ctrd/image/registry"
)

// LabelPull marks leases that keep the content of a pull until it is complete. Its value is the image.
const LabelPull = "monopod.dev/pull"

// keepPartial is how long the content of a failed pull is kept for the next attempt.
const keepPartial = 24 * time.Hour

// resumable returns a context whose content is kept, also over restarts, until done is called without an error or keepPartial has passed.
// Content of an earlier attempt with the same key is kept too, so that the pull resumes.
func (p *Puller) resumable(ctx context.Context, key, name string) (_ context.Context, done func(error), err error) {
	sum := sha256.Sum256([]byte(key))
	service, l := p.Local.Client.LeasesService(), leases.Lease{ID: "monopod-pull-" + hex.EncodeToString(sum[:12])}
	if err := p.acquireLease(ctx, l, name); err != nil {
		return ctx, nil, fmt.Errorf("create a lease for the pull: %w", err)
	}
	if registry.AfterMirror(ctx) {
		p.Local.AbortIngests(ctx, l) // what the mirror has sent may be wrong, and the registry would continue it
	}
	return leases.WithLease(ctx, l.ID), func(err error) {
		ctx := context.WithoutCancel(ctx)
		var opts []leases.DeleteOpt
		if err != nil {
			if !spoiled(err) {
				return
			}
			p.Local.AbortIngests(ctx, l)
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := service.Delete(ctx, l, opts...); err != nil && !errdefs.IsNotFound(err) {
			p.Log.Warn("content of a pull stays on the disk for a day: its lease cannot be deleted", "image", name, "err", err)
		}
	}, nil
}

// acquireLease creates the lease, or takes over the one of a failed pull.
func (p *Puller) acquireLease(ctx context.Context, l leases.Lease, name string) error {
	service := p.Local.Client.LeasesService()
	opts := []leases.Opt{leases.WithID(l.ID), leases.WithLabel(LabelPull, name), leases.WithExpiration(2 * keepPartial)}
	_, err := service.Create(ctx, opts...)
	if !errdefs.IsAlreadyExists(err) {
		return err
	}
	existing, err := service.List(ctx, fmt.Sprintf("id==%q", l.ID))
	if err != nil || len(existing) == 1 && Resumable(existing[0], time.Now()) {
		return err
	}
	if err := service.Delete(ctx, l, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	_, err = service.Create(ctx, opts...)
	return err
}

// spoiled reports whether a pull cannot be resumed: the content is not what was requested, or the registry cannot continue there.
func spoiled(err error) bool {
	if s, ok := errors.AsType[remoteserrors.ErrUnexpectedStatus](err); ok && s.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return true
	}
	if errors.Is(err, bounded.ErrFull) {
		return true // it would keep the disk full
	}
	return errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err) || errdefs.IsOutOfRange(err)
}

// Resumable reports whether a lease keeps the content of a pull and has not expired. A clock that was set back expires it, too.
func Resumable(l leases.Lease, now time.Time) bool {
	age := now.Sub(l.CreatedAt)
	return l.Labels[LabelPull] != "" && age < keepPartial && age > -keepPartial
}

// DropPartial removes the content of failed pulls. Pulls in progress keep theirs.
func (p *Puller) DropPartial(ctx context.Context) error {
	ctx = p.Local.Namespaced(ctx)
	service := p.Local.Client.LeasesService()
	existing, err := service.List(ctx, fmt.Sprintf("labels.%q", LabelPull))
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range existing {
		if len(p.transfers.list(l.Labels[LabelPull])) > 0 {
			continue
		}
		if err := service.Delete(ctx, l, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
