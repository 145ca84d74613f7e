package strategy

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/node/kubeapi/kinds"
)

// defaultAccount is the ServiceAccount that every namespace has.
const defaultAccount = "default"

// Admit sets the fields of a new object that Kubernetes sets after it has recorded field ownership. o is modified.
func Admit(o kinds.Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		admitPod(&o.Spec)
	case *corev1.Service:
		keepAssigned(&corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, &o.Spec)
	}
}

// admitPod sets the fields that admission plug-ins of Kubernetes set: ServiceAccount and priority. The priority of a class is resolved when
// the pod is read.
func admitPod(s *corev1.PodSpec) {
	defaultTo(&s.ServiceAccountName, defaultAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	if s.PriorityClassName == "" {
		defaultPtr(&s.Priority, 0)
		defaultPtr(&s.PreemptionPolicy, corev1.PreemptLowerPriority)
	}
}

// keepAdmitted preserves these fields in an update.
func keepAdmitted(old, now *corev1.PodSpec) {
	if now.ServiceAccountName == "" && old.ServiceAccountName == defaultAccount {
		now.ServiceAccountName, now.DeprecatedServiceAccount = old.ServiceAccountName, old.DeprecatedServiceAccount
	}
	if now.PriorityClassName == old.PriorityClassName {
		if now.Priority == nil {
			now.Priority = old.Priority
		}
		if now.PreemptionPolicy == nil {
			now.PreemptionPolicy = old.PreemptionPolicy
		}
	}
}
