package manifests

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// Priority classes that are built in, and their values, as in an API server.
const (
	NodeCritical    = "system-node-critical"
	ClusterCritical = "system-cluster-critical"

	NodeCriticalPriority    = 2000001000
	ClusterCriticalPriority = 2000000000
	// HighestPriority is the highest that a document may define; above are the built-in ones.
	HighestPriority = 1000000000
)

// Priority is the resolved priority of a pod. Pods with a higher one start earlier, and are stopped and evicted later.
type Priority struct {
	Value int32
	// Explicit is set if the priority comes from the pod, its class, or the default class.
	Explicit bool
	// Class is the name of the class it comes from; empty: none.
	Class string
	// Preempts allows the node to stop pods of lower priority to make room.
	Preempts bool
}

// Critical reports whether the priority is that of a system class, as a kubelet defines it.
func (p Priority) Critical() bool { return p.Value >= ClusterCriticalPriority }

// PriorityOf resolves the priority of a pod as the admission plugin of an API server does. A class that does not exist means nothing:
// only pods that ran before the class was missed have one.
func PriorityOf(p *Pod) Priority {
	spec := &p.Object.Spec
	out := Priority{Class: spec.PriorityClassName}
	policy := spec.PreemptionPolicy
	switch class := p.Refs.priorityClass(); {
	case spec.PriorityClassName == NodeCritical:
		out.Value, out.Explicit = NodeCriticalPriority, true
	case spec.PriorityClassName == ClusterCritical:
		out.Value, out.Explicit = ClusterCriticalPriority, true
	case class != nil && (spec.PriorityClassName == class.Name || spec.PriorityClassName == "" && spec.Priority == nil):
		out.Value, out.Explicit, out.Class = class.Value, true, class.Name
		if policy == nil {
			policy = class.PreemptionPolicy
		}
	}
	if spec.Priority != nil {
		out.Value, out.Explicit = *spec.Priority, true
	}
	out.Preempts = policy == nil || *policy != corev1.PreemptNever
	return out
}

// MissingPriorityClass returns the class that a pod names and no document defines; empty if there is none. A pod with a priority of its own
// needs no class.
func MissingPriorityClass(p *Pod) string {
	name := p.Object.Spec.PriorityClassName
	if p.Object.Spec.Priority != nil || name == NodeCritical || name == ClusterCritical {
		return ""
	}
	if class := p.Refs.priorityClass(); class != nil && class.Name == name {
		return ""
	}
	return name
}

func (r *Refs) priorityClass() *schedulingv1.PriorityClass {
	if r == nil {
		return nil
	}
	return r.PriorityClass
}

// PriorityClass returns a PriorityClass, nil when there is none.
func (o *Objects) PriorityClass(name string) *schedulingv1.PriorityClass {
	return typed[schedulingv1.PriorityClass](o, "PriorityClass", "", name)
}

// defaultPriority is the class of pods that name none, nil when there is none. Of several it is the one with the lowest value.
func (o *Objects) defaultPriority() *schedulingv1.PriorityClass {
	if o == nil {
		return nil
	}
	o.findDefaultPriority.Do(func() {
		for _, obj := range o.inOrder {
			if class, ok := obj.Object.(*schedulingv1.PriorityClass); ok && class.GlobalDefault && (o.byDefault == nil || class.Value < o.byDefault.Value) {
				o.byDefault = class
			}
		}
	})
	return o.byDefault
}

// priorityClassOf is the class that counts for a pod.
func priorityClassOf(pod *corev1.Pod, objects *Objects) *schedulingv1.PriorityClass {
	switch {
	case pod.Spec.PriorityClassName != "":
		return objects.PriorityClass(pod.Spec.PriorityClassName)
	case pod.Spec.Priority != nil:
		return nil
	}
	return objects.defaultPriority()
}

// AnnotationProtected is the annotation that, when it is "true", keeps a pod from being evicted when the machine is short of something, and from being stopped
// for one of a higher priority.
const AnnotationProtected = "monopod.dev/protected"

// Protected reports whether a pod must be neither evicted nor preempted.
func Protected(p *corev1.Pod) bool { return p.Annotations[AnnotationProtected] == "true" }
