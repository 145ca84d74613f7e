// Package limits translates requests and limits of containers and pods into cgroup settings, OOM scores and exclusive processors.
// It is pure: it computes the values, and runner/ctrd/cgroup writes them.
package limits

import (
	"math"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
	"monopod/runner/spec"
)

// Bounds of the cpu controller.
const (
	minShares     = 2
	maxShares     = 262144
	defaultPeriod = 100_000 // microseconds
	minQuota      = 1000
	maxMilliCPU   = 1 << 40 // more than any machine has; keeps the products below from overflowing
)

// OOM scores by class. The lowest a burstable pod may have is above what a guaranteed one reaches with all its memory.
const (
	OOMGuaranteed   = -997
	OOMBestEffort   = 1000
	oomBurstableMin = 3
)

// Priority classes of pods that the machine needs. nodeCritical ones are killed last, whatever they ask for.
const (
	nodeCritical    = "system-node-critical"
	clusterCritical = "system-cluster-critical"
)

// periodOf returns the CFS period in microseconds.
func periodOf(e spec.Enforcement) uint64 {
	if e.CPUPeriod == 0 {
		return defaultPeriod
	}
	return e.CPUPeriod
}

// Update returns the settings that change the cgroup of a running container: CPU and memory as in ForContainer, or unlimited.
func Update(in spec.Input) (*specs.LinuxResources, error) {
	c, err := spec.FindContainer(in.Pod, in.Container)
	if err != nil {
		return nil, err
	}
	r := ForContainer(in, c)
	unlimited := int64(-1)
	if r.Memory.Limit == nil {
		r.Memory.Limit = &unlimited
		if in.Host.SwapAccounting && !in.Host.CgroupV2 {
			r.Memory.Swap = &unlimited
		}
	}
	if r.CPU.Quota == nil {
		r.CPU.Quota = &unlimited
	}
	r.HugepageLimits = nil
	return r, nil
}

// ForContainer returns the limits of the cgroup of a container. The caller adds device rules.
func ForContainer(in spec.Input, c *corev1.Container) *specs.LinuxResources {
	r := &specs.LinuxResources{CPU: cpu(in, c), Memory: &specs.LinuxMemory{}, HugepageLimits: hugepages(in.Host, hugepageLimits(in.Pod, c))}
	memory := ContainerLimit(in.Pod, c, corev1.ResourceMemory).Value()
	if memory > 0 {
		r.Memory.Limit = &memory
	}
	if in.Host.CgroupV2 {
		r.Unified = unified(in, c)
		return r
	}
	if memory > 0 && in.Host.SwapAccounting {
		swap := memory + swapShare(in, c)
		r.Memory.Swap = &swap // memory and swap together
	}
	return r
}

// unified returns what has no field in the OCI spec.
func unified(in spec.Input, c *corev1.Container) map[string]string {
	m := map[string]string{"memory.oom.group": "1"} // one process out of memory ends the whole container
	if in.Host.Enforce.SingleProcessOOMKill {
		m["memory.oom.group"] = "0"
	}
	if in.Host.SwapAccounting {
		m["memory.swap.max"] = strconv.FormatInt(swapShare(in, c), 10)
	}
	request := memoryBytes(c.Resources.Requests)
	class := manifests.QOSClass(in.Pod)
	if in.Host.Enforce.ReserveMemory && request > 0 {
		switch class {
		case corev1.PodQOSGuaranteed:
			m["memory.min"] = strconv.FormatInt(request, 10)
		case corev1.PodQOSBurstable:
			m["memory.low"] = strconv.FormatInt(request, 10)
		}
	}
	if high := memoryHigh(in, c, request); high > 0 && class != corev1.PodQOSGuaranteed {
		m["memory.high"] = strconv.FormatInt(high, 10)
	}
	return m
}

// memoryHigh is from where on a container is slowed down; 0: nowhere.
func memoryHigh(in spec.Input, c *corev1.Container, request int64) int64 {
	factor := in.Host.Enforce.MemoryThrottling
	if factor <= 0 {
		return 0
	}
	limit := ContainerLimit(in.Pod, c, corev1.ResourceMemory).Value()
	if limit <= 0 {
		limit = in.Host.MemoryBytes
	}
	page := max(in.Host.PageSize, 4096)
	high := (request + int64(factor*float64(limit-request))) / page * page
	if high <= request {
		return 0
	}
	return high
}

// swapShare is how much swap a container may use. Unlike a kubelet, to which all static pods are critical, it gives
// some to each burstable pod that has no critical priority class.
func swapShare(in spec.Input, c *corev1.Container) int64 {
	h := in.Host
	if !h.Enforce.LimitedSwap || !h.CgroupV2 || h.MemoryBytes <= 0 || h.SwapBytes <= 0 ||
		in.Pod.Spec.PriorityClassName == nodeCritical || in.Pod.Spec.PriorityClassName == clusterCritical ||
		manifests.QOSClass(in.Pod) != corev1.PodQOSBurstable {
		return 0
	}
	request, limit := memoryBytes(c.Resources.Requests), memoryBytes(c.Resources.Limits)
	if request <= 0 || request == limit {
		return 0
	}
	page := max(h.PageSize, 4096)
	share := float64(min(request, h.MemoryBytes)) / float64(h.MemoryBytes) * float64(h.SwapBytes)
	return int64(share) / page * page
}

// cpu returns weight and quota. The period is always given, as kubelet does.
func cpu(in spec.Input, c *corev1.Container) *specs.LinuxCPU {
	limit := milliOf(ContainerLimit(in.Pod, c, corev1.ResourceCPU))
	request := limit
	if _, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		request = milliCPU(c.Resources.Requests)
	}
	shares, period := cpuShares(request), periodOf(in.Host.Enforce)
	out := &specs.LinuxCPU{Shares: &shares, Period: &period, Cpus: in.CPUs}
	if !in.ExclusiveCPUs {
		out.Quota = cpuQuota(in.Host.Enforce, limit)
	}
	return out
}

// cpuQuota converts a limit in thousandths of a cpu; nil: no limit.
func cpuQuota(e spec.Enforcement, limit int64) *int64 {
	if limit <= 0 || e.NoCPUQuota {
		return nil
	}
	quota := max(limit*int64(periodOf(e))/1000, minQuota)
	return &quota
}

// cpuShares converts thousandths of a cpu.
func cpuShares(milli int64) uint64 {
	return uint64(min(max(milli*1024/1000, minShares), maxShares))
}

// ContainerLimit is the limit of a container, or that of its pod where it has none.
func ContainerLimit(pod *corev1.Pod, c *corev1.Container, name corev1.ResourceName) *resource.Quantity {
	if q := amount(c.Resources.Limits, name); q.Sign() > 0 || pod == nil || pod.Spec.Resources == nil {
		return q
	}
	return amount(pod.Spec.Resources.Limits, name)
}

// OOMScoreAdj returns how early the kernel kills this container, by the pod's class and the container's share of
// the machine's memory, but never less than this process may give.
func OOMScoreAdj(in spec.Input, c *corev1.Container) int {
	return max(wantedOOMScoreAdj(in, c), in.Host.MinOOMScoreAdj)
}

// wantedOOMScoreAdj is kubelet's policy.
func wantedOOMScoreAdj(in spec.Input, c *corev1.Container) int {
	class := manifests.QOSClass(in.Pod)
	switch {
	case in.Pod.Spec.PriorityClassName == nodeCritical || class == corev1.PodQOSGuaranteed:
		return OOMGuaranteed
	case class == corev1.PodQOSBestEffort:
		return OOMBestEffort
	}
	score := burstableScore(in.Host, memoryBytes(c.Resources.Requests)+unclaimedMemory(&in.Pod.Spec))
	if isSidecar(&in.Pod.Spec, c) {
		score = min(score, burstableScore(in.Host, leastMemory(&in.Pod.Spec)))
	}
	return min(max(score, oomBurstableMin), OOMBestEffort-1)
}

func burstableScore(h spec.Host, requested int64) int {
	requested = min(requested, h.MemoryBytes) // keeps the product small
	return int(1000 - 1000*requested/h.MemoryBytes)
}

// unclaimedMemory is one container's part of what the pod requests beyond its containers.
func unclaimedMemory(spec *corev1.PodSpec) int64 {
	n := int64(len(spec.Containers) + len(spec.InitContainers))
	if spec.Resources == nil || n == 0 {
		return 0
	}
	rest := memoryBytes(spec.Resources.Requests) - memoryBytes(manifests.AggregateRequests(spec))
	return max(rest, 0) / n
}

// isSidecar reports whether a container is an init container that keeps running.
func isSidecar(spec *corev1.PodSpec, c *corev1.Container) bool {
	for i := range spec.InitContainers {
		if o := &spec.InitContainers[i]; o.Name == c.Name {
			return manifests.IsSidecar(o)
		}
	}
	return false
}

// leastMemory is the least that a regular container requests.
func leastMemory(spec *corev1.PodSpec) int64 {
	least := int64(math.MaxInt64)
	for i := range spec.Containers {
		least = min(least, memoryBytes(spec.Containers[i].Resources.Requests))
	}
	return least
}

// memoryBytes returns an amount of memory, zero when it is not set.
func memoryBytes(l corev1.ResourceList) int64 {
	return amount(l, corev1.ResourceMemory).Value()
}

// milliCPU returns an amount of cpu in thousandths, zero when it is not set.
func milliCPU(l corev1.ResourceList) int64 {
	return milliOf(amount(l, corev1.ResourceCPU))
}

func milliOf(q *resource.Quantity) int64 { return min(q.MilliValue(), maxMilliCPU) }

func amount(l corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	q := l[name]
	return &q
}

// WholeCPUs is how many processors a container gets for itself under the static policy: those of a guaranteed pod
// that ask for whole ones, and stay. 0: it shares.
func WholeCPUs(pod *corev1.Pod, container string) int {
	c, err := spec.FindContainer(pod, container)
	if err != nil || manifests.QOSClass(pod) != corev1.PodQOSGuaranteed || isOnce(&pod.Spec, container) {
		return 0
	}
	n := milliCPU(c.Resources.Requests)
	if n%1000 != 0 || n != milliCPU(c.Resources.Limits) {
		return 0
	}
	return int(n / 1000)
}

// isOnce reports whether a container is an init container that ends before the regular containers start.
func isOnce(spec *corev1.PodSpec, name string) bool {
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == name {
			return !isSidecar(spec, c)
		}
	}
	return false
}

// hasWholeCPUs reports whether a container of the pod has exclusive processors, which a quota of the pod would cut into.
func hasWholeCPUs(pod *corev1.Pod) bool {
	for c := range manifests.AllContainers(&pod.Spec) {
		if WholeCPUs(pod, c.Name) > 0 {
			return true
		}
	}
	return false
}
