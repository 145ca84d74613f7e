package decode

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/fates"
	"monopod/manifests/policy"
)

// objectRefusals are what a valid document asks for that is not done. What an API server has besides pods belongs to the whole cluster.
func (l *loader) objectRefusals(obj metav1.Object, it document.Item) []document.Problem {
	var outside []document.Problem
	if l.author != AuthorAPIServer {
		outside = l.policy.Outside(l.source, obj.GetNamespace(), it)
	}
	return append(kindRefusals(l.policy, obj, it), outside...)
}

// kindRefusals are those of an object of its kind.
func kindRefusals(by policy.Policy, obj metav1.Object, it document.Item) []document.Problem {
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
		return append(by.VolumeViolations(o, it), fates.RelativePaths(&o.Spec.PersistentVolumeSource, it)...)
	case *schedulingv1.PriorityClass:
		return by.DefaultForAll(o.GlobalDefault, it, "globalDefault", "pods")
	case *manifests.StorageClass:
		return by.DefaultForAll(o.IsDefault(), it, "metadata.annotations", "claims")
	}
	return nil
}
