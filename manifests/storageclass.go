package manifests

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageClass is a StorageClass document. The type of the API would draw everything of storage.k8s.io into the binary.
type StorageClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Provisioner creates the volumes; NoProvisioner disables that.
	Provisioner string `json:"provisioner"`
	// Parameters are for the provisioner; ours has none.
	Parameters map[string]string `json:"parameters,omitempty"`
	// ReclaimPolicy applies to a volume whose claim was removed; nil keeps it, while Kubernetes would delete it.
	ReclaimPolicy        *corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	MountOptions         []string                              `json:"mountOptions,omitempty"`
	AllowVolumeExpansion *bool                                 `json:"allowVolumeExpansion,omitempty"`
	VolumeBindingMode    *string                               `json:"volumeBindingMode,omitempty"`
	AllowedTopologies    []corev1.TopologySelectorTerm         `json:"allowedTopologies,omitempty"`
}

// NoProvisioner is the provisioner of classes whose volumes are all written down.
const NoProvisioner = "kubernetes.io/no-provisioner"

// AnnotationRetain marks claims that a StatefulSet made and wants to be kept without it, or when it gets smaller.
const AnnotationRetain = "monopod.dev/retain"

// IsDefault reports whether the class is that of claims without a class.
func (s *StorageClass) IsDefault() bool {
	const ga, beta = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"
	return s.Annotations[ga] == "true" || s.Annotations[beta] == "true"
}

// ClaimClass returns the class that a claim names, nil when it names none. "" is none on purpose: volumes without a class
// are wanted.
func ClaimClass(c *corev1.PersistentVolumeClaim) *string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return &class
	}
	return c.Spec.StorageClassName
}

// VolumeClass returns the class of a volume, empty for none.
func VolumeClass(v *corev1.PersistentVolume) string {
	if class, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return v.Spec.StorageClassName
}

// Mountable reports whether a volume is of a kind that can be mounted here. Those of CSI drivers and clouds cannot.
func Mountable(v *corev1.PersistentVolume) bool {
	s := &v.Spec.PersistentVolumeSource
	return s.HostPath != nil || s.Local != nil || s.NFS != nil || s.ISCSI != nil
}

// TemplateClaim is the claim of a pod's ephemeral volume.
func TemplateClaim(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	t := v.Ephemeral.VolumeClaimTemplate
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	claim.Name, claim.Namespace = TemplateClaimName(pod, v), pod.Namespace
	return claim
}

// TemplateClaimName is the name of the claim of a pod's ephemeral volume.
func TemplateClaimName(pod *corev1.Pod, v *corev1.Volume) string { return pod.Name + "-" + v.Name }
