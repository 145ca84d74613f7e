package admit

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// preemptable reports whether a pod of the first priority may preempt one of the second: a critical pod may preempt any that is not
// critical, others only if both have a priority.
func preemptable(by, victim manifests.Priority) bool {
	switch {
	case !by.Preempts:
		return false
	case by.Critical() && !victim.Critical():
		return true
	}
	return by.Explicit && victim.Explicit && by.Value > victim.Value
}

// candidate is a pod that may be preempted.
type candidate struct {
	key      manifests.Key
	class    corev1.PodQOSClass
	requests Requests // including one of pods
}

// victims returns the candidates to stop for the missing resources: best-effort pods first, then burstable ones, guaranteed ones only if
// necessary, and of each class as few as possible. nil means that all of them are not enough. It is the kubelet's algorithm
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

// short returns what would still be missing after the given pods are gone.
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

// fewest repeatedly takes the pod closest to the missing amount until nothing is missing.
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

// nearest returns the index of the pod that leaves the least missing; of two equal ones, the smaller.
func nearest(missing Requests, from []candidate) int {
	best := 0
	for i := 1; i < len(from); i++ {
		if cmp.Or(cmp.Compare(distance(missing, from[i]), distance(missing, from[best])), compareSize(from[i], from[best])) < 0 {
			best = i
		}
	}
	return best
}

// distance returns the sum of the squares of the fractions that would still be missing.
func distance(missing Requests, c candidate) float64 {
	sum := 0.0
	for name, n := range missing {
		part := max(1-float64(c.requests[name])/float64(n), 0)
		sum += part * part
	}
	return sum
}

// compareSize compares by memory, then cpu, then name, which makes the choice deterministic.
func compareSize(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(a.requests[corev1.ResourceMemory], b.requests[corev1.ResourceMemory]),
		cmp.Compare(a.requests[corev1.ResourceCPU], b.requests[corev1.ResourceCPU]),
		a.key.Compare(b.key),
	)
}
