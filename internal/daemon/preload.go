package daemon

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// preloading is a Runtime whose image archives are being imported for the first time. Images that are there
// already can be used at once; a pull, and the check of a whole pod before it is replaced, waits until the
// archives are imported, because it may be of an image that they hold, and the network may not be there.
type preloading struct {
	Runtime
	// done is cancelled when the archives have been imported.
	done context.Context //nolint:containedctx // it stands for an event, no call is made with it
}

// Apply implements runner.Runtime.
func (p preloading) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if p.done.Err() != nil || a.Kind != runner.EnsureImage && a.Kind != runner.CheckPod {
		return p.Runtime.Apply(ctx, key, pod, a)
	}
	if local := withoutPull(pod, a); local != nil && p.Runtime.Apply(ctx, key, local, a) == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.done.Done():
		return p.Runtime.Apply(ctx, key, pod, a)
	}
}

// withoutPull returns the pod with an image for a's container that must be there; nil when a asks for more.
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
