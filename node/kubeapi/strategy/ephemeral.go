package strategy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/defaults"
	"monopod/node/kubeapi/kinds"
)

// EphemeralContainers turns a write of pods/ephemeralcontainers into the desired pod: now keeps only the ephemeral containers of the
// request. added are the names of new containers. Existing ones cannot be changed or removed.
func EphemeralContainers(k *kinds.Kind, old, now *corev1.Pod) (added []string, err error) {
	sent, version, uid := now.Spec.EphemeralContainers, now.ResourceVersion, now.UID
	name, namespace := now.Name, now.Namespace
	old.DeepCopyInto(now)
	now.Name, now.Namespace, now.ResourceVersion, now.UID = name, namespace, version, uid // Update checks these in every update
	now.Spec.EphemeralContainers = sent
	defaults.Pod(now)
	var errs field.ErrorList
	path := field.NewPath("spec", "ephemeralContainers")
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		at := slices.IndexFunc(sent, func(e corev1.EphemeralContainer) bool { return e.Name == was.Name })
		switch {
		case at < 0:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
		case !equality.Semantic.DeepEqual(*was, sent[at]):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n", was.Name)))
		}
	}
	for i := range sent {
		if !slices.ContainsFunc(old.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == sent[i].Name }) {
			added = append(added, sent[i].Name)
		}
	}
	if len(errs) > 0 {
		return nil, invalid(k, old.Name, errs...)
	}
	now.Generation = old.Generation + int64(len(added))
	return added, nil
}

// sameEphemeral preserves the ephemeral containers of a pod in all other writes: manifests do not have them, and they change only through
// their own subresource.
func sameEphemeral(k *kinds.Kind, old, now *corev1.Pod) error {
	if len(now.Spec.EphemeralContainers) > 0 && !equality.Semantic.DeepEqual(old.Spec.EphemeralContainers, now.Spec.EphemeralContainers) {
		return invalid(k, old.Name, field.Forbidden(field.NewPath("spec", "ephemeralContainers"), "can only be added through pods/ephemeralcontainers, for example with kubectl debug"))
	}
	now.Spec.EphemeralContainers = old.DeepCopy().Spec.EphemeralContainers
	return nil
}
