package limits

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/quantity"
	"monopod/manifests"
	"monopod/runner/spec"
)

// Values are the values of a cgroup above containers. Absent ones are no limits.
type Values struct {
	Shares uint64
	// Quota and Period are in microseconds.
	Quota  *int64
	Period uint64
	Memory *int64
	// MemoryMin and MemoryLow are protected from reclaim, hard and softly (cgroup v2).
	MemoryMin, MemoryLow int64
	Pids                 *int64
	// Hugepages are bytes by page size: 2MB.
	Hugepages map[string]int64
}

// AllPods are limits of all pods together. Fields that are zero are none.
type AllPods struct {
	// Memory is in bytes, MilliCPU the share of the processors when all want them.
	Memory, MilliCPU, Pids int64
}

// ForAllPods is what the cgroup of all pods is to have.
func ForAllPods(l AllPods, h spec.Host) Values {
	v := Values{Shares: cpuShares(min(l.MilliCPU, maxMilliCPU)), Period: periodOf(h.Enforce)}
	if l.Memory > 0 {
		v.Memory = &l.Memory
	}
	if l.Pids > 0 {
		v.Pids = &l.Pids
	}
	return v
}

// ForPod is what the cgroup of a pod is to have, as a kubelet would set it.
func ForPod(pod *corev1.Pod, h spec.Host) Values {
	requests, limits := wholePod(pod)
	v := Values{Shares: minShares, Period: periodOf(h.Enforce)}
	if h.Enforce.PodPidsLimit > 0 {
		v.Pids = &h.Enforce.PodPidsLimit
	}
	class := manifests.QOSClass(pod)
	if class != corev1.PodQOSBestEffort {
		v.Shares = cpuShares(milliCPU(requests))
		if manifests.AllLimited(&pod.Spec, corev1.ResourceCPU) && (!h.Enforce.StaticCPUs || !hasWholeCPUs(pod)) {
			v.Quota = cpuQuota(h.Enforce, milliCPU(limits))
		}
		if memory := memoryBytes(limits); memory > 0 && manifests.AllLimited(&pod.Spec, corev1.ResourceMemory) {
			v.Memory = &memory
		}
	}
	if h.Enforce.ReserveMemory {
		switch class {
		case corev1.PodQOSGuaranteed:
			v.MemoryMin = memoryBytes(requests)
		case corev1.PodQOSBurstable:
			v.MemoryLow = memoryBytes(requests)
		}
	}
	for _, l := range hugepages(h, limits) {
		if v.Hugepages == nil {
			v.Hugepages = map[string]int64{}
		}
		v.Hugepages[l.Pagesize] = int64(l.Limit)
	}
	return v
}

// wholePod returns the requests and limits of a pod and of its runtime.
func wholePod(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	requests, limits = manifests.PodRequests(&pod.Spec), manifests.PodLimits(&pod.Spec)
	manifests.AddOverhead(pod.Spec.Overhead, requests, limits)
	return requests, limits
}

// InEffect returns what ForPod enforces, as resources: the requests and limits that a kubelet would read back from the cgroup. A memory
// request is not in it, and limits are only if they apply to all containers.
func InEffect(pod *corev1.Pod, h spec.Host) *corev1.ResourceRequirements {
	v := ForPod(pod, h)
	requests, limits := wholePod(pod)
	r := &corev1.ResourceRequirements{}
	if cpu, ok := requests[corev1.ResourceCPU]; ok {
		r.Requests = corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	for name, value := range map[corev1.ResourceName]*int64{corev1.ResourceCPU: v.Quota, corev1.ResourceMemory: v.Memory} {
		if value == nil {
			continue
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = limits[name]
	}
	return r
}

// Widen returns values that leave at least as much room as both, for the time in which containers change.
func (v Values) Widen(o Values) Values {
	v.Shares = max(v.Shares, o.Shares)
	v.Quota, v.Memory, v.Pids = wider(v.Quota, o.Quota), wider(v.Memory, o.Memory), wider(v.Pids, o.Pids)
	if o.Hugepages != nil {
		all := maps.Clone(o.Hugepages)
		for size, n := range v.Hugepages {
			all[size] = max(all[size], n)
		}
		v.Hugepages = all
	}
	return v
}

func wider(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	return new(max(*a, *b))
}

// ForClass is what the cgroup of all burstable, or all best-effort, pods is to have.
func ForClass(class corev1.PodQOSClass, pods []*corev1.Pod, h spec.Host) Values {
	var cpu, memory int64
	for _, p := range pods {
		requests := manifests.PodRequests(&p.Spec)
		manifests.AddOverhead(p.Spec.Overhead, requests, nil)
		cpu += milliCPU(requests)
		memory += memoryBytes(requests)
	}
	v := Values{Shares: minShares, Period: periodOf(h.Enforce)}
	if class == corev1.PodQOSBurstable {
		v.Shares = cpuShares(min(cpu, maxMilliCPU))
		if h.Enforce.ReserveMemory {
			v.MemoryLow = memory
		}
	}
	return v
}

// hugepages returns a limit for each page size of the machine: what is not asked for is forbidden. It is empty where
// the machine cannot limit them.
func hugepages(h spec.Host, limits corev1.ResourceList) []specs.LinuxHugepageLimit {
	var out []specs.LinuxHugepageLimit
	for _, size := range h.HugePageSizes {
		l := specs.LinuxHugepageLimit{Pagesize: hugePageName(size)}
		for name, q := range limits {
			if n, ok := HugePageSize(name); ok && n == size {
				l.Limit = uint64(q.Value())
			}
		}
		out = append(out, l)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Pagesize < out[j].Pagesize })
	return out
}

// hugePageName is how the kernel names a size in the hugetlb controller: 64KB, 2MB, 1GB.
func hugePageName(size int64) string {
	switch {
	case size >= 1<<30:
		return fmt.Sprintf("%dGB", size>>30)
	case size >= 1<<20:
		return fmt.Sprintf("%dMB", size>>20)
	}
	return fmt.Sprintf("%dKB", size>>10)
}

// HugePageSize returns the size of the pages that a resource counts, in bytes.
func HugePageSize(name corev1.ResourceName) (int64, bool) {
	text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := quantity.Parse(text)
	return q.Value(), err == nil
}

// hugepageLimits are the limits of a container, and of its pod for page sizes that the container does not set.
func hugepageLimits(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	limits := corev1.ResourceList{}
	if pod.Spec.Resources != nil {
		maps.Copy(limits, pod.Spec.Resources.Limits)
	}
	maps.Copy(limits, c.Resources.Limits)
	return limits
}

// CheckHugepages refuses huge pages that the machine does not have or cannot limit.
func CheckHugepages(h spec.Host, pod *corev1.Pod, c *corev1.Container) error {
	for name, q := range hugepageLimits(pod, c) {
		size, ok := HugePageSize(name)
		if ok && q.Sign() > 0 && !slices.Contains(h.HugePageSizes, size) {
			return fmt.Errorf("container %s: this machine has no %s, or its kernel cannot limit them (hugetlb cgroup controller)", c.Name, name)
		}
	}
	return nil
}
