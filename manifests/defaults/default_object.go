package defaults

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultClaim and defaultPersistentVolume fill in what the API fills in.
func defaultClaim(spec *corev1.PersistentVolumeClaimSpec) {
	orPointer(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundToMilli(spec.Resources.Limits)
	roundToMilli(spec.Resources.Requests)
}

func defaultPersistentVolume(spec *corev1.PersistentVolumeSpec) {
	orDefault(&spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	orPointer(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	if spec.HostPath != nil {
		orPointer(&spec.HostPath.Type, corev1.HostPathUnset)
	}
	if spec.ISCSI != nil {
		orDefault(&spec.ISCSI.ISCSIInterface, "default")
	}
}

// Object fills in what the API fills in, and the namespace unless the kind is cluster-wide.
func Object(obj metav1.Object, cluster bool) {
	if !cluster && obj.GetNamespace() == "" {
		obj.SetNamespace(corev1.NamespaceDefault)
	}
	switch o := obj.(type) {
	case *corev1.Secret:
		defaultSecret(o)
	case *nodev1.RuntimeClass:
		if o.Overhead != nil {
			roundToMilli(o.Overhead.PodFixed)
		}
	case *corev1.PersistentVolumeClaim:
		defaultClaim(&o.Spec)
	case *corev1.PersistentVolume:
		defaultPersistentVolume(&o.Spec)
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			o.Spec.Template = &corev1.PodTemplateSpec{}
		}
		if len(o.Spec.Selector) == 0 {
			o.Spec.Selector = maps.Clone(o.Spec.Template.Labels)
		}
	case *appsv1.StatefulSet:
		for i := range o.Spec.VolumeClaimTemplates {
			defaultClaim(&o.Spec.VolumeClaimTemplates[i].Spec)
		}
	}
}

func defaultSecret(s *corev1.Secret) {
	orDefault(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}
