package shown

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"monopod/manifests"
)

// Priorities are the PriorityClasses by name. The class for pods that name none is stored under the empty name.
type Priorities map[string]*schedulingv1.PriorityClass

// PrioritiesOf returns the classes among documents.
func PrioritiesOf(all []*manifests.Object) Priorities {
	classes := Priorities{}
	for _, doc := range all {
		c, ok := doc.Object.(*schedulingv1.PriorityClass)
		if !ok {
			continue
		}
		classes[c.Name] = c
		if other := classes[""]; c.GlobalDefault && (other == nil || c.Value < other.Value) {
			classes[""] = c
		}
	}
	return classes
}

// Of returns the class that determines the priority of a pod, nil if none.
func (p Priorities) Of(s *corev1.PodSpec) *schedulingv1.PriorityClass {
	if s.PriorityClassName == "" && s.Priority != nil {
		return nil
	}
	return p[s.PriorityClassName]
}

// Admit sets the fields that admission plug-ins of Kubernetes set in a pod: its priority, and the ServiceAccount of pods of workloads.
// Static pods have none, and other pods got one when they were created.
func Admit(s *corev1.PodSpec, class *schedulingv1.PriorityClass, hasOwner bool) {
	if hasOwner && s.ServiceAccountName == "" {
		s.ServiceAccountName, s.DeprecatedServiceAccount = "default", "default"
	}
	p := manifests.PriorityOf(&manifests.Pod{Object: &corev1.Pod{Spec: *s}, Refs: &manifests.Refs{PriorityClass: class}})
	policy := corev1.PreemptLowerPriority
	if !p.Preempts {
		policy = corev1.PreemptNever
	}
	s.Priority, s.PreemptionPolicy = &p.Value, &policy
}
