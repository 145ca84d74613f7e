// Package capacity computes what this machine has, what of it is reserved for the machine itself, and what remains for pods. The formulas
// are those of a kubelet: pkg/kubelet/cm/node_container_manager_linux.go for reservations, pkg/kubelet/nodestatus/setters.go for capacity
// and allocatable.
//
// Read is the only effect; everything else is pure. It must not know of pods, nor change anything. It has no goroutines.
package capacity

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/quantity"
)

// PID is the resource of process ids. It can be reserved; a node's status does not show it.
const PID corev1.ResourceName = "pid"

// Machine is what there is.
type Machine struct {
	// MilliCPU is a thousand for each processor that is online.
	MilliCPU int64
	// Memory is MemTotal, in bytes.
	Memory int64
	// Storage is the size, in bytes, of the file system that holds what pods write.
	Storage int64
	// HugePages is how many bytes there are in huge pages, by the size of a page in bytes.
	HugePages map[int64]int64
	// PIDs is the most processes and threads there can be.
	PIDs int64
}

// Amount is a quantity, or a share of what there is.
type Amount struct {
	// Quantity is nil for a share.
	Quantity *resource.Quantity
	// Share is between 0 and 1.
	Share float64
}

// ParseAmount reads an amount as a KubeletConfiguration has it: "100Mi" or "10%".
func ParseAmount(s string) (Amount, error) {
	if percent, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(p >= 0 && p <= 100) {
			return Amount{}, fmt.Errorf("%q is not a percentage between 0 and 100", s)
		}
		return Amount{Share: p / 100}, nil
	}
	q, err := quantity.Parse(s)
	if err != nil || q.Sign() < 0 {
		return Amount{}, fmt.Errorf("%q is neither a quantity such as 100Mi nor a percentage such as 10%%", s)
	}
	return Amount{Quantity: &q}, nil
}

// Of is the amount in units, where there are total.
func (a Amount) Of(total int64) int64 {
	if a.Quantity != nil {
		return a.Quantity.Value()
	}
	return int64(float64(total) * a.Share)
}

// IsZero reports whether the amount is nothing.
func (a Amount) IsZero() bool {
	return a.Quantity == nil && a.Share == 0 || a.Quantity != nil && a.Quantity.IsZero()
}

// String writes it as ParseAmount reads it.
func (a Amount) String() string {
	if a.Quantity != nil {
		return a.Quantity.String()
	}
	return strconv.FormatFloat(a.Share*100, 'f', -1, 64) + "%"
}

// Reserved is what is kept from pods.
type Reserved struct {
	// System is for the programs of the machine, Kube for monopod itself: systemReserved and kubeReserved.
	System, Kube corev1.ResourceList
	// Memory and Storage are the hard eviction thresholds of memory.available and nodefs.available. What pods are evicted for using
	// cannot be promised to them.
	Memory, Storage Amount
}

// ParseReserved reads systemReserved or kubeReserved.
func ParseReserved(written map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if !reservable(corev1.ResourceName(name)) {
			return nil, fmt.Errorf("%q cannot be reserved; cpu, memory, ephemeral-storage and pid can", name)
		}
		q, err := quantity.Parse(written[name])
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%s: %q is not a quantity such as 500m or 1Gi", name, written[name])
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

// ParseClaimed reads nodeCapacity.
func ParseClaimed(written map[string]string) (corev1.ResourceList, error) {
	if _, ok := written[string(PID)]; ok {
		return nil, fmt.Errorf("%q is not requested by pods; cpu, memory and ephemeral-storage are", PID)
	}
	return ParseReserved(written)
}

func reservable(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, PID}, name)
}

// Of returns the capacity of a machine as a node shows it, where maxPods pods may run.
func Of(m Machine, maxPods int) corev1.ResourceList {
	out := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(m.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(m.Memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.Storage, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
	}
	for size, total := range m.HugePages {
		out[HugePageResource(size)] = *resource.NewQuantity(total, resource.BinarySI)
	}
	return out
}

// As returns the machine as one that has what is claimed.
func (m Machine) As(claimed corev1.ResourceList) Machine {
	if q, ok := claimed[corev1.ResourceCPU]; ok {
		m.MilliCPU = q.MilliValue()
	}
	if q, ok := claimed[corev1.ResourceMemory]; ok {
		m.Memory = q.Value()
	}
	if q, ok := claimed[corev1.ResourceEphemeralStorage]; ok {
		m.Storage = q.Value()
	}
	return m
}

// HugePageResource names the resource of huge pages of a size in bytes: hugepages-2Mi.
func HugePageResource(size int64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

// Allocatable is what remains of a capacity for pods. Memory in huge pages is not available to other uses.
func Allocatable(capacity corev1.ResourceList, r Reserved) corev1.ResourceList {
	out := r.without(capacity, Reserved.total)
	memory := out[corev1.ResourceMemory]
	for name, q := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			memory.Sub(q)
		}
	}
	out[corev1.ResourceMemory] = atLeastZero(memory)
	return out
}

// without takes what is reserved from each resource.
func (r Reserved) without(capacity corev1.ResourceList, reserved func(Reserved, corev1.ResourceName, int64) resource.Quantity) corev1.ResourceList {
	out := make(corev1.ResourceList, len(capacity))
	for name, q := range capacity {
		left := q.DeepCopy()
		left.Sub(reserved(r, name, q.Value()))
		out[name] = atLeastZero(left)
	}
	return out
}

func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

// total returns the reserved amount of a resource with a capacity.
func (r Reserved) total(name corev1.ResourceName, capacity int64) resource.Quantity {
	sum := r.others(name, capacity)
	switch name {
	case corev1.ResourceMemory:
		sum.Add(*resource.NewQuantity(r.Memory.Of(capacity), resource.BinarySI))
	case corev1.ResourceEphemeralStorage:
		sum.Add(*resource.NewQuantity(r.Storage.Of(capacity), resource.BinarySI))
	}
	return sum
}

// others is what is kept for others than pods, without the thresholds.
func (r Reserved) others(name corev1.ResourceName, _ int64) resource.Quantity {
	sum := r.System[name].DeepCopy()
	sum.Add(r.Kube[name])
	return sum
}

// Limits are those of the cgroup of all pods; zero fields: none.
type Limits struct {
	// Memory is in bytes. The hard eviction threshold is not taken off: pods are to be evicted before the kernel kills in them.
	Memory int64
	// MilliCPU is the share of the pods when all want the processors. It is there when anything is.
	MilliCPU int64
	PIDs     int64
}

// LimitsOf returns the limits that protect what is reserved. Memory and process ids without a reservation are not limited.
func LimitsOf(m Machine, r Reserved) Limits {
	left := r.without(corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(m.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
		PID:                   *resource.NewQuantity(m.PIDs, resource.DecimalSI),
	}, Reserved.others)
	reserves := func(name corev1.ResourceName) bool { q := r.others(name, 0); return !q.IsZero() }
	l := Limits{}
	if reserves(corev1.ResourceMemory) {
		l.Memory = max(left.Memory().Value(), 1)
	}
	if reserves(PID) {
		pids := left[PID]
		l.PIDs = max(pids.Value(), 1)
	}
	if l != (Limits{}) || reserves(corev1.ResourceCPU) {
		l.MilliCPU = max(left.Cpu().MilliValue(), 1)
	}
	return l
}

// Check finds reservations that leave nothing for pods.
func Check(m Machine, r Reserved) error {
	left := Allocatable(Of(m, 1), r)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q := left[name]; q.Sign() <= 0 {
			all := Of(m, 1)[name]
			kept := r.total(name, all.Value())
			return fmt.Errorf("%s: %s is reserved, but the machine has %s", name, &kept, &all)
		}
	}
	return nil
}
