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

// Purge deletes all that we have in a containerd besides pods: images, leases, sandbox records, then the namespace; its
// garbage collection takes snapshots and content. Containers that are still there may be those of another instance: then
// nothing is deleted, and the error says so. After it the Runtime can only be closed.
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
