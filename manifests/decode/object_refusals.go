package decode

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/fates"
)

// objectRefusals are what a valid document asks for that is not done.
func (l *loader) objectRefusals(obj any, it document.Item) []document.Problem {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		return fates.ClaimSources(&o.Spec, it, "spec")
	case *appsv1.StatefulSet:
		var found []document.Problem
		for i := range o.Spec.VolumeClaimTemplates {
			found = append(found, fates.ClaimSources(&o.Spec.VolumeClaimTemplates[i].Spec, it, "spec.volumeClaimTemplates["+strconv.Itoa(i)+"].spec")...)
		}
		return found
	case *corev1.PersistentVolume:
		return append(l.policy.VolumeViolations(o, it), fates.RelativePaths(&o.Spec.PersistentVolumeSource, it)...)
	case *schedulingv1.PriorityClass:
		return l.policy.DefaultForAll(o.GlobalDefault, it, "globalDefault", "pods")
	case *manifests.StorageClass:
		return l.policy.DefaultForAll(o.IsDefault(), it, "metadata.annotations", "claims")
	}
	return nil
}
