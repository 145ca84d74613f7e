package admit

import (
	"fmt"
	"slices"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// HostPorts returns the host ports of a pod.
func HostPorts(pod *manifests.Pod) []manifests.HostPort {
	var all []manifests.HostPort
	for c := range manifests.LongRunningContainers(&pod.Object.Spec) {
		for i := range c.Ports {
			if h := manifests.HostPortOf(&c.Ports[i]); h.Port != 0 {
				all = append(all, h)
			}
		}
	}
	return all
}

// portOwner is a pod that has or wants a port.
type portOwner struct {
	manifests.HostPort
	key manifests.Key
}

// portDirectory records the owners of ports, by port number.
type portDirectory struct {
	held     map[int32][]portOwner // by sandboxes
	reserved map[int32][]portOwner // by desired pods that were admitted
	unseen   map[int32][]portOwner // by desired pods that may hold them: their state is unknown
	// leaving are the pods that are being stopped.
	leaving map[manifests.Key]bool
	// blind reports that the ports of some pod are unknown.
	blind bool
}

func newPortDirectory(a Input) *portDirectory {
	d := &portDirectory{
		held:     map[int32][]portOwner{},
		reserved: map[int32][]portOwner{},
		unseen:   map[int32][]portOwner{},
		leaving:  map[manifests.Key]bool{},
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
		if pod := h.has(); pod != nil {
			enter(d.held, pod)
			d.leaving[key] = h.Leaving
		}
		d.blind = d.blind || !h.Seen && !wanted[key]
	}
	return d
}

func enter(m map[int32][]portOwner, pod *manifests.Pod) {
	for _, h := range HostPorts(pod) {
		m[h.Port] = append(m[h.Port], portOwner{h, pod.Key()})
	}
}

func (d *portDirectory) reserve(pod *manifests.Pod) { enter(d.reserved, pod) }

// conflict returns what the pod's ports conflict with. Ports that the pod already has never conflict.
func (d *portDirectory) conflict(pod *manifests.Pod) *runner.Held {
	key := pod.Key()
	for _, h := range HostPorts(pod) {
		if owns(d.held[h.Port], key, h) {
			continue
		}
		for _, m := range []map[int32][]portOwner{d.held, d.reserved} {
			if o := other(m[h.Port], key, h); o != nil {
				return &runner.Held{Reason: runner.ReasonHostPortConflict, Message: fmt.Sprintf("host port %s is taken by pod %s", h, o.key), Cause: cause.Cause{Kind: cause.HostPortPod, Pod: o.key.String()}, Final: !d.leaving[o.key]}
			}
		}
		if o := other(d.unseen[h.Port], key, h); o != nil {
			return starting("host port %s may be taken by pod %s, whose state is not known yet", h, o.key)
		}
		if d.blind {
			return starting("the host ports of other pods are not known yet")
		}
	}
	return nil
}

func owns(all []portOwner, key manifests.Key, h manifests.HostPort) bool {
	return slices.ContainsFunc(all, func(o portOwner) bool { return o.key == key && o.Overlaps(h) })
}

func other(all []portOwner, key manifests.Key, h manifests.HostPort) *portOwner {
	for i := range all {
		if all[i].key != key && all[i].Overlaps(h) {
			return &all[i]
		}
	}
	return nil
}
