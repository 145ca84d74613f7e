package admit

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// preemptable says that a pod of the first priority may have one of the second stopped: a critical one any that is not, others only
// where both have been given a priority.
func preemptable(by, victim manifests.Priority) bool {
	switch {
	case !by.Preempts:
		return false
	case by.Critical() && !victim.Critical():
		return true
	}
	return by.Explicit && victim.Explicit && by.Value > victim.Value
}

// candidate is a pod that may be stopped.
type candidate struct {
	key      manifests.Key
	class    corev1.PodQOSClass
	requests Requests // with one of pods
}

// victims are those of the candidates that have to go for what is missing: first best-effort pods, then burstable ones, and guaranteed ones
// only if there is no other way; of each class as few as possible. nil: all of them are not enough. It is kubelet's choice
// (pkg/kubelet/preemption).
func victims(missing Requests, from []candidate) []candidate {
	if len(short(missing, from)) > 0 {
		return nil
	}
	of := func(class corev1.PodQOSClass) []candidate {
		return slices.DeleteFunc(slices.Clone(from), func(c candidate) bool { return c.class != class })
	}
	best, burstable, guaranteed := of(corev1.PodQOSBestEffort), of(corev1.PodQOSBurstable), of(corev1.PodQOSGuaranteed)
	guaranteed = fewest(short(missing, slices.Concat(best, burstable)), guaranteed)
	burstable = fewest(short(missing, slices.Concat(best, guaranteed)), burstable)
	best = fewest(short(missing, slices.Concat(burstable, guaranteed)), best)
	return slices.Concat(best, burstable, guaranteed)
}

// short is what is missing still when some pods are gone.
func short(missing Requests, gone []candidate) Requests {
	left := Requests{}
	for name, n := range missing {
		for _, c := range gone {
			n -= c.requests[name]
		}
		if n > 0 {
			left[name] = n
		}
	}
	return left
}

// fewest takes the pod that comes nearest to what is missing, again and again until nothing is.
func fewest(missing Requests, from []candidate) []candidate {
	var taken []candidate
	for len(missing) > 0 && len(from) > 0 {
		i := nearest(missing, from)
		taken = append(taken, from[i])
		missing = short(missing, from[i:i+1])
		from = slices.Delete(slices.Clone(from), i, i+1)
	}
	return taken
}

// nearest is the index of the pod that leaves the least missing; of two alike the smaller one.
func nearest(missing Requests, from []candidate) int {
	best := 0
	for i := 1; i < len(from); i++ {
		if cmp.Or(cmp.Compare(distance(missing, from[i]), distance(missing, from[best])), compareSize(from[i], from[best])) < 0 {
			best = i
		}
	}
	return best
}

// distance is the sum of the squares of the parts that would still be missing.
func distance(missing Requests, c candidate) float64 {
	sum := 0.0
	for name, n := range missing {
		part := max(1-float64(c.requests[name])/float64(n), 0)
		sum += part * part
	}
	return sum
}

// compareSize compares by memory, then cpu, then name, so that the choice is always the same.
func compareSize(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(a.requests[corev1.ResourceMemory], b.requests[corev1.ResourceMemory]),
		cmp.Compare(a.requests[corev1.ResourceCPU], b.requests[corev1.ResourceCPU]),
		a.key.Compare(b.key),
	)
}
