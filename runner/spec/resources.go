package spec

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
)

// Bounds of the cpu controller.
const (
	minShares   = 2
	maxShares   = 262144
	quotaPeriod = 100_000 // microseconds
	minQuota    = 1000
	maxMilliCPU = 1 << 40 // more than any machine has; keeps the products below from overflowing
)

// OOM scores by class. The lowest a burstable pod may have is above what a guaranteed one reaches with all its memory.
const (
	oomGuaranteed   = -997
	oomBestEffort   = 1000
	oomBurstableMin = 3
)

// nodeCritical is the priority class whose pods are killed last, whatever they ask for.
const nodeCritical = "system-node-critical"

// resources returns the limits of the container's cgroup. Device rules are added by the caller.
func resources(in Input, c *corev1.Container) *specs.LinuxResources {
	limits := c.Resources.Limits
	r := &specs.LinuxResources{CPU: cpu(c.Resources), Memory: &specs.LinuxMemory{}}
	memory := memoryBytes(limits)
	if memory > 0 {
		r.Memory.Limit = &memory
	}
	if in.Host.PodPidsLimit > 0 {
		pids := in.Host.PodPidsLimit
		r.Pids = &specs.LinuxPids{Limit: &pids}
	}
	if in.Host.CgroupV2 {
		// One process out of memory ends the whole container, and nobody swaps.
		r.Unified = map[string]string{"memory.oom.group": "1"}
		if in.Host.SwapAccounting {
			r.Unified["memory.swap.max"] = "0"
		}
	} else if memory > 0 && in.Host.SwapAccounting {
		r.Memory.Swap = &memory // memory and swap together
	}
	return r
}

// cpu returns weight and quota. The period is always given, as kubelet does.
func cpu(r corev1.ResourceRequirements) *specs.LinuxCPU {
	limit := milli(r.Limits, corev1.ResourceCPU)
	request := limit
	if _, ok := r.Requests[corev1.ResourceCPU]; ok {
		request = milli(r.Requests, corev1.ResourceCPU)
	}
	shares, period := cpuShares(request), uint64(quotaPeriod)
	out := &specs.LinuxCPU{Shares: &shares, Period: &period}
	if limit > 0 {
		quota := max(limit*quotaPeriod/1000, minQuota)
		out.Quota = &quota
	}
	return out
}

// cpuShares converts thousandths of a cpu.
func cpuShares(milli int64) uint64 {
	return uint64(min(max(milli*1024/1000, minShares), maxShares))
}

// oomScoreAdj returns how early the kernel kills this container, by the pod's class and the container's share of
// the machine's memory, but never less than this process may give.
func oomScoreAdj(in Input, c *corev1.Container) int {
	return max(wantedOOMScoreAdj(in, c), in.Host.MinOOMScoreAdj)
}

// wantedOOMScoreAdj is kubelet's policy.
func wantedOOMScoreAdj(in Input, c *corev1.Container) int {
	class := manifests.QOSClass(in.Pod)
	switch {
	case in.Pod.Spec.PriorityClassName == nodeCritical || class == corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case class == corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	requested := min(memoryBytes(c.Resources.Requests), in.Host.MemoryBytes) // keeps the product small
	score := int(1000 - 1000*requested/in.Host.MemoryBytes)
	return min(max(score, oomBurstableMin), oomBestEffort-1)
}

// memoryBytes returns an amount of memory, zero when it is not set.
func memoryBytes(l corev1.ResourceList) int64 {
	return amount(l, corev1.ResourceMemory).Value()
}

// milli returns an amount in thousandths, zero when it is not set.
func milli(l corev1.ResourceList, name corev1.ResourceName) int64 {
	return min(amount(l, name).MilliValue(), maxMilliCPU)
}

func amount(l corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	q := l[name]
	return &q
}
