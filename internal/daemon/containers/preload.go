package containers

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// Preloading is a Runtime whose image archives are being imported for the first time. Images that are present can be
// used at once. Pulls, and checks of a whole pod before it is replaced, wait until the archives are imported: they may
// contain the image, and there may be no network.
type Preloading struct {
	Runtime
	// Done is cancelled once the archives are imported.
	Done context.Context //nolint:containedctx // it stands for an event, no call is made with it
}

// Apply implements runner.Runtime.
func (p Preloading) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if p.Done.Err() != nil || a.Kind != runner.EnsureImage && a.Kind != runner.CheckPod {
		return p.Runtime.Apply(ctx, key, pod, a)
	}
	if local := withoutPull(pod, a); local != nil && p.Runtime.Apply(ctx, key, local, a) == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.Done.Done():
		return p.Runtime.Apply(ctx, key, pod, a)
	}
}

// withoutPull returns a copy of the pod whose image must be present for a's container; nil: the action needs more than that.
func withoutPull(pod *manifests.Pod, a runner.Action) *manifests.Pod {
	if pod == nil || a.Kind != runner.EnsureImage {
		return nil
	}
	o := pod.Object.DeepCopy()
	c := manifests.FindContainer(&o.Spec, a.Container)
	if c == nil || c.ImagePullPolicy == corev1.PullAlways {
		return nil
	}
	c.ImagePullPolicy = corev1.PullNever
	return &manifests.Pod{Object: o, Origin: pod.Origin, Images: pod.Images}
}
