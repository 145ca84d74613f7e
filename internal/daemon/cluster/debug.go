package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/policy"
	"monopod/manifests/validate"
	"monopod/node/apiserver"
	"monopod/node/apiserver/mirror"
	"monopod/runner/pool"
)

// debug adds an ephemeral container to a pod that is bound to this node and runs here.
func (l *Link) debug(ctx context.Context, p *corev1.Pod, e corev1.EphemeralContainer) error {
	pod := p.DeepCopy()
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, e)
	reasons := policy.Forbidden(l.policy.PodSecurity, &pod.ObjectMeta, &pod.Spec)
	if len(reasons) > 0 { // the rest of the pod was allowed before
		before := policy.Forbidden(l.policy.PodSecurity, &p.ObjectMeta, &p.Spec)
		reasons = slices.DeleteFunc(reasons, func(text string) bool { return slices.Contains(before, text) })
	}
	for _, err := range validate.Ephemeral(pod) {
		reasons = append(reasons, err.Error())
	}
	if len(reasons) > 0 {
		return &apiserver.RejectedError{Reason: mirror.ReasonNotSupported, Message: strings.Join(reasons, "; ")}
	}
	err := l.State.AddEphemeral(ctx, manifests.Key{Namespace: p.Namespace, Name: p.Name}, p.UID, []corev1.EphemeralContainer{e})
	if errors.Is(err, pool.ErrEphemeral) {
		return &apiserver.RejectedError{Reason: mirror.ReasonNotSupported, Message: err.Error()}
	}
	return err
}
