package pressure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
)

// Use is what a pod, or one of its containers, uses; in bytes, and numbers.
type Use struct{ Memory, Disk, Inodes, PIDs int64 }

// Pod is a pod that runs.
type Pod struct {
	Key manifests.Key
	UID string
	// Pod is its manifest, Priority what that comes to.
	Pod      *corev1.Pod
	Priority manifests.Priority
	Use      Use
	// Containers are what its containers use, by name: of the disk their layers and logs.
	Containers map[string]Use
	// Leaving reports that it is being stopped.
	Leaving bool
	// Local reports that it belongs to the local space.
	Local bool
}

// use is what a pod has of a resource, request what it has asked for.
func (p *Pod) use(s Signal) (use, request int64) {
	requests := manifests.PodRequests(&p.Pod.Spec)
	switch s.Resource() {
	case "memory":
		return p.Use.Memory, requests.Memory().Value()
	case "inodes":
		return p.Use.Inodes, 0
	case "pids":
		return p.Use.PIDs, 0
	}
	return p.Use.Disk, requests.StorageEphemeral().Value()
}

// Rank sorts the pods that may be evicted for a signal, the first one first: those that use more than they request, then those of other spaces
// than the local one, because their sources choose their priorities themselves, then those of a low priority, then those that exceed their
// request by most. For process ids it is irrelevant what pods request. Without spaces this is the order of a kubelet.
func Rank(s Signal, pods []Pod, cfg *Config) []Pod {
	out := slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool {
		return p.Leaving || manifests.Protected(p.Pod) || p.Priority.Critical() && !cfg.EvictCritical
	})
	group := func(p *Pod) (n int) {
		if use, request := p.use(s); use <= request && s != PIDAvailable {
			n = 2
		}
		if p.Local {
			n++
		}
		return n
	}
	slices.SortStableFunc(out, func(a, b Pod) int {
		ua, ra := a.use(s)
		ub, rb := b.use(s)
		return cmp.Or(cmp.Compare(group(&a), group(&b)), cmp.Compare(a.Priority.Value, b.Priority.Value), cmp.Compare(ub-rb, ua-ra), a.Key.Compare(b.Key))
	})
	return out
}

// inVain is the part of what is missing below which it does not help to evict a pod: a kubelet would, one after the other.
const inVain = 100

// Choose returns the pod that is to be evicted; nil: none would help.
func Choose(t *Threshold, l Level, pods []Pod, cfg *Config) *Pod {
	missing := t.missing(l)
	ranked := Rank(t.Signal, pods, cfg)
	for i := range ranked {
		if use, _ := ranked[i].use(t.Signal); use > 0 && use >= missing/inVain {
			return &ranked[i]
		}
	}
	return nil
}

// Order tells the pool to evict a pod.
type Order struct {
	UID string
	// Signal is what there is too little of.
	Signal  Signal
	Message string
	// Grace bounds how long its containers may take.
	Grace time.Duration
}

// graceHard is kubelet's for hard thresholds.
const graceHard = time.Second

// OrderFor makes the order to evict a pod, in kubelet's words.
func OrderFor(p *Pod, t *Threshold, l Level, cfg *Config) Order {
	o := Order{UID: p.UID, Signal: t.Signal, Grace: graceHard}
	if t.Soft {
		o.Grace = cfg.MaxPodGrace
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", t.Signal.Resource(), amount(t, l), quantity(t.Signal, l.Available))
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		u, ok := p.Containers[c.Name]
		use, request := u.Memory, c.Resources.Requests.Memory()
		switch t.Signal.Resource() {
		case "memory":
		case "ephemeral-storage":
			use, request = u.Disk, c.Resources.Requests.StorageEphemeral()
		default:
			continue
		}
		if ok && use > request.Value() {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, quantity(t.Signal, use), request, t.Signal.Resource())
		}
	}
	o.Message = strings.TrimSpace(b.String())
	return o
}

// amount is a threshold as a quantity.
func amount(t *Threshold, l Level) string {
	if t.Amount.Quantity != nil {
		return t.Amount.Quantity.String()
	}
	return quantity(t.Signal, t.Amount.Of(l.Capacity))
}

func quantity(s Signal, n int64) string {
	format := resource.BinarySI
	if r := s.Resource(); r == "inodes" || r == "pids" {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(n, format).String()
}

// Admit returns why a pod must not start now; empty: it may. Critical pods always may, and under memory pressure alone all pods with
// requests.
func Admit(pod *manifests.Pod, now []corev1.NodeConditionType) string {
	if len(now) == 0 || manifests.PriorityOf(pod).Critical() {
		return ""
	}
	if len(now) == 1 && now[0] == corev1.NodeMemoryPressure {
		tolerates := slices.ContainsFunc(pod.Object.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == corev1.TaintNodeMemoryPressure || t.Key == "" && t.Operator == corev1.TolerationOpExists) && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
		})
		if manifests.QOSClass(pod.Object) != corev1.PodQOSBestEffort || tolerates {
			return ""
		}
	}
	return fmt.Sprintf("The node had condition: %v.", now)
}
