// Package imageservice declares what the daemon requires from the images of a runtime.
//
// It must not know who needs an image; see package needs. It starts no goroutines.
package imageservice

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
)

// Service reads and manages the images of a runtime.
type Service interface {
	// List returns all images with the pods that use them.
	List(ctx context.Context) ([]ctrd.ImageUse, error)
	// Pulls returns the pulls in progress of one image; of all if ref is empty.
	Pulls(ctx context.Context, ref string) ([]model.Pull, error)
	// Pull makes an image present.
	Pull(ctx context.Context, ref string, policy corev1.PullPolicy) (*image.Image, error)
	// Targets returns the references by the digests that they resolve to.
	Targets(ctx context.Context, refs []string) (map[string][]string, error)
	// Collect removes unused images.
	Collect(ctx context.Context, c image.Collection) (image.Collected, error)
	// Remove removes an image by its digest; with forced, even if a container uses it.
	Remove(ctx context.Context, digest string, forced bool) error
	// Disk returns the state of the image file system.
	Disk() (gc.Disk, error)
	// Changed receives a value when images were added or fewer are in use.
	Changed() <-chan struct{}
	// Wanted returns the size of an image for which the disk was too full since the last call; 0 if there was none.
	Wanted() int64
}
