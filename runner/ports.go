package runner

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Held says why a desired pod may not be started now, or its edit not be carried out.
type Held struct {
	Reason  string
	Message string
}

// Reasons for holding a pod.
const (
	ReasonHostPortConflict = "HostPortConflict"
	// ReasonOutOfPods is spelled as kubelet's admission spells it.
	ReasonOutOfPods = "OutOfpods"
	// ReasonStarting: which pods hold host ports is not known yet, shortly after the start of the agent.
	ReasonStarting = "Starting"
)

// Holding is what is known of a pod that may occupy host ports and a place.
type Holding struct {
	// Seen says that its state has been observed in this run.
	Seen bool
	// Pod is the manifest of its sandbox, nil when it has none.
	Pod *manifests.Pod
}

// Admission is what Admit decides on.
type Admission struct {
	// Desired pods by precedence.
	Desired []*manifests.Pod
	// Known pods: all desired ones, those being removed, and those that are kept.
	Known map[manifests.Key]Holding
	// Listed says that Known holds every pod the runtime has.
	Listed bool
	// MaxPods is the most pods there may be, 0: no limit.
	MaxPods int
}

// Admit finds the desired pods that must wait: for a host port that another pod has, or for a place. What runs
// comes first, because no edit of one pod may stop another; among the others the order of Desired decides.
func Admit(a Admission) map[manifests.Key]Held {
	held := map[manifests.Key]Held{}
	d := newPortDirectory(a)
	places := a.MaxPods
	for _, h := range a.Known {
		if h.Pod != nil {
			places--
		}
	}
	for _, pod := range a.Desired {
		key := pod.Key()
		if h := d.conflict(pod); h != nil {
			held[key] = *h
			if h.Reason == ReasonStarting {
				enter(d.unseen, pod) // it may get its ports yet: those after it must not be faster
			}
			continue
		}
		if a.MaxPods > 0 && a.Known[key].Pod == nil {
			if places <= 0 {
				held[key] = Held{ReasonOutOfPods, fmt.Sprintf("there are maxPods (%d) pods already", a.MaxPods)}
				continue
			}
			places--
		}
		d.reserve(pod)
	}
	return held
}

// hostPort is one port of the host that a pod asks for.
type hostPort struct {
	protocol corev1.Protocol
	port     int32
	ip       string
}

func (h hostPort) String() string {
	if h.ip == "" {
		return fmt.Sprintf("%d/%s", h.port, h.protocol)
	}
	return fmt.Sprintf("%s:%d/%s", h.ip, h.port, h.protocol)
}

// overlaps follows Kubernetes: one port of one protocol is taken once for each address, or once for all of them.
func (h hostPort) overlaps(o hostPort) bool {
	return h.protocol == o.protocol && h.port == o.port && (h.ip == o.ip || h.ip == "" || o.ip == "")
}

// hostPorts returns the host ports of a pod. All spellings of "every address" become the empty one.
func hostPorts(pod *manifests.Pod) []hostPort {
	var all []hostPort
	for c := range manifests.LastingContainers(&pod.Object.Spec) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			h := hostPort{protocol: p.Protocol, port: p.HostPort, ip: p.HostIP}
			if h.ip == "0.0.0.0" || h.ip == "::" {
				h.ip = ""
			}
			if h.protocol == "" {
				h.protocol = corev1.ProtocolTCP
			}
			all = append(all, h)
		}
	}
	return all
}

// portOwner is a pod that has or wants a port.
type portOwner struct {
	hostPort
	key manifests.Key
}

// portDirectory knows who has which port, by port number.
type portDirectory struct {
	held     map[int32][]portOwner // by sandboxes
	reserved map[int32][]portOwner // by desired pods that were admitted
	unseen   map[int32][]portOwner // by desired pods that may hold them: their state is not known yet
	// blind says that some pod's ports are not known at all.
	blind bool
}

func newPortDirectory(a Admission) *portDirectory {
	d := &portDirectory{
		held:     map[int32][]portOwner{},
		reserved: map[int32][]portOwner{},
		unseen:   map[int32][]portOwner{},
		blind:    !a.Listed,
	}
	wanted := make(map[manifests.Key]bool, len(a.Desired))
	for _, pod := range a.Desired {
		wanted[pod.Key()] = true
		if !a.Known[pod.Key()].Seen {
			enter(d.unseen, pod)
		}
	}
	for key, h := range a.Known {
		if h.Pod != nil {
			enter(d.held, h.Pod)
		}
		d.blind = d.blind || !h.Seen && !wanted[key]
	}
	return d
}

func enter(m map[int32][]portOwner, pod *manifests.Pod) {
	for _, h := range hostPorts(pod) {
		m[h.port] = append(m[h.port], portOwner{h, pod.Key()})
	}
}

func (d *portDirectory) reserve(pod *manifests.Pod) { enter(d.reserved, pod) }

// conflict says what is in the way of a pod. Ports that the pod has already are never in its way.
func (d *portDirectory) conflict(pod *manifests.Pod) *Held {
	key := pod.Key()
	for _, h := range hostPorts(pod) {
		if owns(d.held[h.port], key, h) {
			continue
		}
		for _, m := range []map[int32][]portOwner{d.held, d.reserved} {
			if o := other(m[h.port], key, h); o != nil {
				return &Held{ReasonHostPortConflict, fmt.Sprintf("host port %s is taken by pod %s", h, o.key)}
			}
		}
		if o := other(d.unseen[h.port], key, h); o != nil {
			return &Held{ReasonStarting, fmt.Sprintf("host port %s may be taken by pod %s, whose state is not known yet", h, o.key)}
		}
		if d.blind {
			return &Held{ReasonStarting, "which pods hold host ports is not known yet"}
		}
	}
	return nil
}

func owns(all []portOwner, key manifests.Key, h hostPort) bool {
	return slices.ContainsFunc(all, func(o portOwner) bool { return o.key == key && o.overlaps(h) })
}

func other(all []portOwner, key manifests.Key, h hostPort) *portOwner {
	for i := range all {
		if all[i].key != key && all[i].overlaps(h) {
			return &all[i]
		}
	}
	return nil
}
