package manifests

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ServerMetadata is the server-set metadata of an object applied through monopod's Kubernetes API. It is stored next to the manifest, not in it.
type ServerMetadata struct {
	UID                        types.UID                   `json:"uid,omitempty"`
	GenerateName               string                      `json:"genName,omitempty"`
	CreationTimestamp          metav1.Time                 `json:"created,omitzero"`
	Generation                 int64                       `json:"gen,omitempty"`
	OwnerReferences            []metav1.OwnerReference     `json:"owners,omitempty"`
	Finalizers                 []string                    `json:"finalizers,omitempty"`
	DeletionTimestamp          *metav1.Time                `json:"deleted,omitempty"`
	DeletionGracePeriodSeconds *int64                      `json:"grace,omitempty"`
	ManagedFields              []metav1.ManagedFieldsEntry `json:"managed,omitempty"`
	// Conditions are the conditions that clients set for the readiness gates of a pod, PodUID identifies that pod.
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
	PodUID     types.UID             `json:"podUID,omitempty"`
}

// SetOn sets the metadata on an object. Empty fields are not set.
func (g *ServerMetadata) SetOn(o metav1.Object) {
	if g == nil {
		return
	}
	if g.UID != "" {
		o.SetUID(g.UID)
	}
	if !g.CreationTimestamp.IsZero() {
		o.SetCreationTimestamp(g.CreationTimestamp)
	}
	if g.Generation != 0 {
		o.SetGeneration(g.Generation)
	}
	if g.GenerateName != "" {
		o.SetGenerateName(g.GenerateName)
	}
	if len(g.OwnerReferences) > 0 {
		o.SetOwnerReferences(g.OwnerReferences)
	}
	if len(g.Finalizers) > 0 {
		o.SetFinalizers(g.Finalizers)
	}
	if g.DeletionTimestamp != nil {
		o.SetDeletionTimestamp(g.DeletionTimestamp)
		o.SetDeletionGracePeriodSeconds(g.DeletionGracePeriodSeconds)
	}
	if len(g.ManagedFields) > 0 {
		o.SetManagedFields(g.ManagedFields)
	}
}
