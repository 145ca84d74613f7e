// Package pressure watches for shortage of memory, disk, inodes and process ids. It maintains the pressure conditions of the node, reclaims
// what is unused, and evicts pods when that is not enough, by the rules of a kubelet (pkg/kubelet/eviction).
//
// Thresholds, the order of pods and messages are pure. Sensors read the kernel; pods, images and dead containers are observed and changed
// through small interfaces. It must not know how a pod is stopped, nor when it comes back.
//
// Goroutines: Monitor.Run has one, which waits for pressure stall information of the kernel.
package pressure

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/capacity"
)

// Signal is something that there can be too little of.
type Signal string

// Signals, with kubelet's names.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFsAvailable            Signal = "nodefs.available"
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available"
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// signals are those that can be configured, in the order in which they are seen to: memory first.
func signals() []Signal {
	return []Signal{MemoryAvailable, AllocatableMemoryAvailable, NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable, ImageFsInodesFree, PIDAvailable}
}

// Condition is that of the node while there is too little.
func (s Signal) Condition() corev1.NodeConditionType {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return corev1.NodeMemoryPressure
	case PIDAvailable:
		return corev1.NodePIDPressure
	}
	return corev1.NodeDiskPressure
}

// Resource is what is given back, with kubelet's names.
func (s Signal) Resource() string {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return "memory"
	case NodeFsInodesFree, ImageFsInodesFree:
		return "inodes"
	case PIDAvailable:
		return "pids"
	}
	return "ephemeral-storage"
}

// Threshold is the level of a signal below which pods are evicted.
type Threshold struct {
	Signal Signal
	Amount capacity.Amount
	// Grace is how long it must be met before pods are evicted; 0: at once.
	Grace time.Duration
	// Soft: pods have time to stop.
	Soft bool
	// MinReclaim is how much more than the threshold must be free before the threshold no longer counts as met.
	MinReclaim capacity.Amount
}

// Config of a Monitor.
type Config struct {
	Thresholds []Threshold
	// MaxPodGrace bounds the time that pods have to stop for a soft threshold.
	MaxPodGrace time.Duration
	// Transition is how long a condition stays after its threshold was met last.
	Transition time.Duration
	// Period is the interval of checks without an event of the kernel.
	Period time.Duration
	// EvictCritical: critical pods are evicted like others.
	EvictCritical bool
}

// HardAmounts returns the amounts of memory and disk at which pods are evicted at once. Pods cannot request them.
func HardAmounts(thresholds []Threshold) (memory, storage capacity.Amount) {
	for i := range thresholds {
		switch t := &thresholds[i]; {
		case t.Soft:
		case t.Signal == MemoryAvailable:
			memory = t.Amount
		case t.Signal == NodeFsAvailable:
			storage = t.Amount
		}
	}
	return memory, storage
}

// Written are thresholds as a KubeletConfiguration has them, by signal.
type Written struct {
	Hard, Soft, SoftGrace, MinReclaim map[string]string
	// MergeDefaults: the default counts for each signal that Hard does not have; else defaults count only when Hard is empty.
	MergeDefaults bool
	// Allocatable: all pods together have a limit of memory, so that they can run short of it.
	Allocatable bool
}

// defaults are kubelet's on Linux.
func defaults() map[string]string {
	return map[string]string{
		string(MemoryAvailable): "100Mi", string(NodeFsAvailable): "10%", string(NodeFsInodesFree): "5%",
		string(ImageFsAvailable): "15%", string(ImageFsInodesFree): "5%",
	}
}

// Mistake is what is wrong with one key of the configuration.
type Mistake struct {
	// Key is for example evictionHard.
	Key string
	Err error
}

// Error implements error.
func (m *Mistake) Error() string { return m.Key + ": " + m.Err.Error() }

// Unwrap returns the error without the key.
func (m *Mistake) Unwrap() error { return m.Err }

// Parse reads thresholds. The error joins all that is wrong, of type *Mistake each.
func (w Written) Parse() ([]Threshold, error) {
	hard := w.Hard
	if len(hard) == 0 || w.MergeDefaults {
		hard = defaults()
		maps.Copy(hard, w.Hard)
	}
	p := parser{written: w}
	p.unknown("evictionHard", w.Hard)
	p.unknown("evictionSoft", w.Soft)
	p.unknown("evictionSoftGracePeriod", w.SoftGrace)
	p.unknown("evictionMinimumReclaim", w.MinReclaim)
	for _, s := range signals() {
		p.hard(s, hard)
		p.soft(s)
	}
	return p.out, errors.Join(p.errs...)
}

// parser collects thresholds and what is wrong with them.
type parser struct {
	written Written
	out     []Threshold
	errs    []error
}

func (p *parser) mistake(key, format string, args ...any) {
	p.errs = append(p.errs, &Mistake{key, fmt.Errorf(format, args...)})
}

func (p *parser) unknown(key string, m map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if s := Signal(name); s == AllocatableMemoryAvailable || !slices.Contains(signals(), s) {
			p.mistake(key, "unknown signal %q; expected memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree or pid.available", name)
		}
	}
}

// amount reads one; a zero one is none.
func (p *parser) amount(key string, s Signal, m map[string]string) (capacity.Amount, bool) {
	text, ok := m[string(s)]
	if !ok {
		return capacity.Amount{}, false
	}
	a, err := capacity.ParseAmount(text)
	if err != nil {
		p.mistake(key, "%s: %w", s, err)
	}
	return a, err == nil && !a.IsZero()
}

func (p *parser) hard(s Signal, all map[string]string) {
	from := s
	if s == AllocatableMemoryAvailable {
		if !p.written.Allocatable {
			return
		}
		from = MemoryAvailable
	}
	a, ok := p.amount("evictionHard", from, all)
	if !ok {
		return
	}
	more, _ := p.amount("evictionMinimumReclaim", from, p.written.MinReclaim)
	p.out = append(p.out, Threshold{Signal: s, Amount: a, MinReclaim: more})
}

func (p *parser) soft(s Signal) {
	a, ok := p.amount("evictionSoft", s, p.written.Soft)
	if !ok {
		return
	}
	text, given := p.written.SoftGrace[string(s)]
	grace, err := time.ParseDuration(text)
	switch {
	case !given:
		p.mistake("evictionSoft", "%s has no evictionSoftGracePeriod", s)
		return
	case err != nil || grace <= 0:
		p.mistake("evictionSoftGracePeriod", "%s: %q is not a duration such as 30s or 5m", s, text)
		return
	}
	more, _ := p.amount("evictionMinimumReclaim", s, p.written.MinReclaim)
	p.out = append(p.out, Threshold{Signal: s, Amount: a, Grace: grace, Soft: true, MinReclaim: more})
}
