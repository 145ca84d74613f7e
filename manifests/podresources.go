package manifests

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PodRequests is what a pod asks for as a whole: spec.resources where it names a resource, else what its containers
// need at the moment they need most.
func PodRequests(spec *corev1.PodSpec) corev1.ResourceList {
	sum := aggregate(spec, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
	return override(sum, spec.Resources, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
}

// PodLimits is what the containers of a pod may use together, where all that is limited counts: a container without
// a limit adds nothing.
func PodLimits(spec *corev1.PodSpec) corev1.ResourceList {
	sum := aggregate(spec, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
	return override(sum, spec.Resources, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
}

// AddOverhead adds what the runtime of a pod needs itself to what the pod asks for, and to the limits there are.
func AddOverhead(overhead, requests, limits corev1.ResourceList) {
	for name, q := range overhead {
		sum := requests[name]
		sum.Add(q)
		requests[name] = sum
		if l, limited := limits[name]; limited {
			l.Add(q)
			limits[name] = l
		}
	}
}

// AllLimited reports whether the pod itself, or each of its containers, has a limit of the resource.
func AllLimited(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	if spec.Resources != nil && positive(spec.Resources.Limits, name) != nil {
		return true
	}
	for c := range AllContainers(spec) {
		if positive(c.Resources.Limits, name) == nil {
			return false
		}
	}
	return true
}

// AggregateLimits sums up the limits of those containers that have one.
func AggregateLimits(spec *corev1.PodSpec) corev1.ResourceList {
	return aggregate(spec, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
}

// AggregateRequests sums up the requests of the containers alone.
func AggregateRequests(spec *corev1.PodSpec) corev1.ResourceList {
	return aggregate(spec, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
}

// aggregate follows the life of a pod: init containers run one after another beside the sidecars started before
// them, then all others together with all sidecars.
func aggregate(spec *corev1.PodSpec, list func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	together, sidecars, most := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		addTo(together, list(&spec.Containers[i].Resources))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if IsSidecar(c) {
			addTo(sidecars, list(&c.Resources))
			addTo(together, list(&c.Resources))
			raiseTo(most, sidecars)
			continue
		}
		now := sidecars.DeepCopy()
		addTo(now, list(&c.Resources))
		raiseTo(most, now)
	}
	raiseTo(together, most)
	return together
}

func addTo(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

func raiseTo(most, list corev1.ResourceList) {
	for name, q := range list {
		if old, ok := most[name]; !ok || q.Cmp(old) > 0 {
			most[name] = q.DeepCopy()
		}
	}
}

func override(sum corev1.ResourceList, pod *corev1.ResourceRequirements, list func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	if pod != nil {
		for name, q := range list(pod) {
			sum[name] = q.DeepCopy()
		}
	}
	return sum
}

// IsDeviceKind reports whether a resource is a kind of devices (vendor/class), outside the domain of Kubernetes.
func IsDeviceKind(name corev1.ResourceName) bool {
	vendor, class, ok := strings.Cut(string(name), "/")
	return ok && class != "" && vendor != "kubernetes.io" && !strings.HasSuffix(vendor, ".kubernetes.io")
}

// IsHugePage reports whether a resource is huge pages of some size.
func IsHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// Resizable returns the part of a container's resources that can be changed while it runs. It shares what it can with r: pods
// are immutable.
func Resizable(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: resizable(r.Limits), Requests: resizable(r.Requests)}
}

// PodResizable returns the part of the resources of a pod as a whole that can be changed while it runs.
func PodResizable(spec *corev1.PodSpec) corev1.ResourceRequirements {
	if spec.Resources == nil {
		return corev1.ResourceRequirements{}
	}
	return Resizable(*spec.Resources)
}

func resizable(list corev1.ResourceList) corev1.ResourceList {
	cpu, hasCPU := list[corev1.ResourceCPU]
	memory, hasMemory := list[corev1.ResourceMemory]
	there := 0
	for _, has := range []bool{hasCPU, hasMemory} {
		if has {
			there++
		}
	}
	switch {
	case there == 0:
		return nil
	case there == len(list):
		return list
	case there == 2:
		return corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
	case hasCPU:
		return corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	return corev1.ResourceList{corev1.ResourceMemory: memory}
}
