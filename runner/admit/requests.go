package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Requests are amounts by resource: millicores for cpu, units of all others. Missing ones are zero.
type Requests map[corev1.ResourceName]int64

// RequestsOf converts a list. It omits extended resources, as a kubelet without device plug-ins does.
func RequestsOf(list corev1.ResourceList) Requests {
	var out Requests
	for name, q := range list {
		n := q.Value()
		switch {
		case name == corev1.ResourceCPU:
			n = q.MilliValue()
		case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		default:
			continue
		}
		if n <= 0 {
			continue
		}
		if out == nil {
			out = Requests{}
		}
		out[name] = n
	}
	return out
}

// PodRequests returns the requests of a pod, including the overhead of its RuntimeClass.
func PodRequests(pod *manifests.Pod) Requests {
	out := RequestsOf(manifests.PodRequests(&pod.Object.Spec))
	overhead := pod.Object.Spec.Overhead
	if class, err := manifests.RuntimeOf(pod); err == nil && class.Overhead != nil {
		overhead = class.Overhead
	}
	for name, n := range RequestsOf(overhead) {
		if out == nil {
			out = Requests{}
		}
		out[name] += n
	}
	return out
}

// Add adds the part of o in excess of has.
func (r Requests) Add(o, has Requests) {
	for name, n := range o {
		r[name] += max(n-has[name], 0)
	}
}

// lack is a resource that is insufficient for a pod.
type lack struct {
	name                      corev1.ResourceName
	requested, used, capacity int64
}

// String returns the kubelet's message.
func (l lack) String() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", l.name, l.requested, l.used, l.capacity)
}

// missing returns the amount that must be freed.
func (l lack) missing() int64 { return l.requested - (l.capacity - l.used) }

// always reports whether the request exceeds what the machine has for pods, so that no other pod is in the way.
func (l lack) always() bool { return l.name != corev1.ResourcePods && l.requested > l.capacity }

// lacks returns the insufficient resources in the kubelet's order. A resource that the pod already has is never refused.
func lacks(want, has, used, room Requests) []lack {
	var out []lack
	for name, n := range want {
		if n <= has[name] {
			continue
		}
		others := used[name] - has[name]
		if n > room[name]-others {
			out = append(out, lack{name, n, others, room[name]})
		}
	}
	slices.SortFunc(out, func(a, b lack) int {
		return cmp.Or(cmp.Compare(rank(a.name), rank(b.name)), cmp.Compare(a.name, b.name))
	})
	return out
}

func rank(name corev1.ResourceName) int {
	order := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}
