package ctrd

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"monopod/runner/ctrd/fault"
)

// Purge deletes everything in a containerd that is not a pod: images, leases, sandbox records, then the namespace. Garbage
// collection removes snapshots and content. If there are containers, which may be those of another instance, Purge deletes nothing
// and returns an error. Afterwards the Runtime can only be closed.
func (r *Runtime) Purge(ctx context.Context) error {
	ctx = namespaces.WithNamespace(ctx, r.cfg.Namespace)
	left, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return fmt.Errorf("delete images: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("containerd has %d containers in namespace %s that are not of this instance; its images stay", len(left), r.cfg.Namespace)
	}
	var errs []error
	held, err := r.client.LeasesService().List(ctx)
	errs = append(errs, err)
	for _, l := range held {
		errs = append(errs, fault.IgnoreNotFound(r.client.LeasesService().Delete(ctx, l, leases.SynchronousDelete)))
	}
	all, err := r.client.ImageService().List(ctx)
	errs = append(errs, err)
	for i := range all {
		errs = append(errs, fault.IgnoreNotFound(r.client.ImageService().Delete(ctx, all[i].Name, images.SynchronousDelete())))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete images: %w", err)
	}
	if err := fault.IgnoreNotFound(r.client.NamespaceService().Delete(ctx, r.cfg.Namespace)); err != nil {
		return fmt.Errorf("delete the namespace of containerd: %w", err)
	}
	return nil
}
