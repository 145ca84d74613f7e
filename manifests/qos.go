package manifests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass computes a pod's quality of service class as kubelet does, from cpu and memory of its init and
// regular containers, or from spec.resources where that names cpu or memory. Unlike kubelet it does not look at
// status.qosClass: a manifest must not choose its own class. A missing request counts as the limit, so that
// the answer is the same before and after defaulting.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	all := qosRequirements(p)
	guaranteed, found := true, false
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := positive(r.Requests, name), positive(r.Limits, name)
			if request == nil && !declared(r.Requests, name) {
				request = limit
			}
			found = found || request != nil || limit != nil
			guaranteed = guaranteed && request != nil && limit != nil && request.Cmp(*limit) == 0
		}
	}
	switch {
	case !found:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// qosRequirements returns what the class depends on: the pod's own resources if it has any that count, else
// those of each container that is not ephemeral.
func qosRequirements(p *corev1.Pod) []corev1.ResourceRequirements {
	if r := p.Spec.Resources; r != nil {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if declared(r.Requests, name) || declared(r.Limits, name) {
				return []corev1.ResourceRequirements{*r}
			}
		}
	}
	all := make([]corev1.ResourceRequirements, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers))
	for i := range p.Spec.InitContainers {
		all = append(all, p.Spec.InitContainers[i].Resources)
	}
	for i := range p.Spec.Containers {
		all = append(all, p.Spec.Containers[i].Resources)
	}
	return all
}

// positive returns a quantity above zero; zero counts as not set.
func positive(l corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	if q, ok := l[name]; ok && q.Sign() > 0 {
		return &q
	}
	return nil
}

// declared reports whether the list contains the resource, even with quantity 0.
func declared(l corev1.ResourceList, name corev1.ResourceName) bool {
	_, ok := l[name]
	return ok
}
