package ctrd

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/image"
	"monopod/runner/spec"
)

// imageOf returns the reference to run for a key of manifests.Pod.Images.
func imageOf(pod *manifests.Pod, key, ref string) string {
	if digest := pod.Images[key]; digest != "" {
		return image.AtDigest(ref, digest)
	}
	return ref
}

// ensureImageOf makes that image present. A digest that is here need not be asked for again, so that a revision can be gone
// back to without a registry.
func (r *Runtime) ensureImageOf(ctx context.Context, pod *manifests.Pod, key, ref string, policy corev1.PullPolicy) (*image.Image, error) {
	digest := pod.Images[key]
	if digest == "" {
		return r.images.Ensure(ctx, ref, policy)
	}
	if policy == corev1.PullAlways {
		policy = corev1.PullIfNotPresent
	}
	return r.images.EnsureDigest(ctx, r.cfg.RootDirectory, ref, digest, policy)
}

// mountedImages are the digests of the images among the volumes of a container.
func mountedImages(volumes map[string]spec.Volume) map[string]string {
	var images map[string]string
	for name, v := range volumes {
		if v.Image == "" {
			continue
		}
		if images == nil {
			images = map[string]string{}
		}
		images[name] = v.Image
	}
	return images
}

// SyncPins makes containerd keep the images with these digests, whatever their tags come to stand for, and no others on
// behalf of this instance. Of those that are gone there is nothing to keep, now or later.
func (r *Runtime) SyncPins(ctx context.Context, digests []string) (gone []string, err error) {
	return r.images.SyncPins(r.ns(ctx), r.cfg.RootDirectory, digests)
}
