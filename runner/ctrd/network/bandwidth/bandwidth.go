// Package bandwidth limits the bandwidth of pods with token bucket filters on both ends of their veth pair. The filters disappear with the pair;
// it must not keep state.
package bandwidth

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"monopod/runner/ctrd/network/link"
)

// Capability is the name of the CNI capability for bandwidth limits.
const Capability = "bandwidth"

// Limits are what a pod may receive (Ingress) and send (Egress), in bits per second; 0: no limit.
type Limits struct{ Ingress, Egress int64 }

// entry is the value of Capability in CNI's conventions.
type entry struct {
	IngressRate  int64 `json:"ingressRate,omitempty"`
	IngressBurst int64 `json:"ingressBurst,omitempty"`
	EgressRate   int64 `json:"egressRate,omitempty"`
	EgressBurst  int64 `json:"egressBurst,omitempty"`
}

// Entry returns the value of Capability.
func (b Limits) Entry() any {
	e := entry{IngressRate: b.Ingress, EgressRate: b.Egress}
	if b.Ingress > 0 {
		e.IngressBurst = 8 * int64(burst(b.Ingress))
	}
	if b.Egress > 0 {
		e.EgressBurst = 8 * int64(burst(b.Egress))
	}
	return e
}

// burst returns how many bytes may be sent at full speed after a pause: a tenth of a second's worth, but at least a segmentation-offload
// packet, which would be split otherwise. The kubelet uses 512 MB, with which few pods ever reach the limit.
func burst(bits int64) uint32 {
	return uint32(min(max(bits/8/10, 64<<10), math.MaxInt32))
}

// Apply limits egress at the pod's end of the veth pair in a network namespace, and ingress at the host's. A pod needs CAP_NET_ADMIN to remove
// its own limit, which is granted by the same manifest.
func Apply(path string, b Limits) error {
	return ends(path, func(inside, host *netlink.Handle, eth *netlink.LinkAttrs) error {
		if err := limit(inside, eth.Index, b.Egress); err != nil {
			return fmt.Errorf("egress: %w", err)
		}
		if err := limit(host, eth.ParentIndex, b.Ingress); err != nil {
			return fmt.Errorf("ingress: %w", err)
		}
		return nil
	})
}

// Applied reports whether the limits of a pod exist. It returns true if that cannot be read.
func Applied(path string, b Limits) bool {
	if b == (Limits{}) {
		return true
	}
	applied := true
	err := ends(path, func(inside, host *netlink.Handle, eth *netlink.LinkAttrs) error {
		sent, err := buckets(inside, eth.Index)
		if err != nil {
			return err
		}
		received, err := buckets(host, eth.ParentIndex)
		applied = (b.Egress == 0 || len(sent) > 0) && (b.Ingress == 0 || len(received) > 0)
		return err
	})
	return err != nil || applied
}

// ends calls f with a handle in the namespace of a pod, one in the host's, and the pod's end of the pair.
func ends(path string, f func(inside, host *netlink.Handle, eth *netlink.LinkAttrs) error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	eth, err := inside.LinkByName(link.Interface)
	if err != nil {
		return err
	}
	host, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer host.Close()
	return f(inside, host, eth.Attrs())
}

// limit sets the token bucket filter of a device, or removes it for 0 bits per second.
func limit(h *netlink.Handle, device int, bits int64) error {
	root := netlink.QdiscAttrs{LinkIndex: device, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	if bits == 0 {
		return removeLimit(h, device)
	}
	rate, size := uint64(bits)/8, burst(bits)
	const latency = 0.025 // seconds that packets wait before some are dropped
	q := &netlink.Tbf{
		QdiscAttrs: root, Rate: rate, Buffer: netlink.Xmittime(rate, size),
		Limit: uint32(min(float64(rate)*latency+float64(size), math.MaxUint32)),
	}
	if err := h.QdiscReplace(q); err != nil {
		return fmt.Errorf("token bucket filter (kernel module sch_tbf): %w", err)
	}
	return nil
}

// removeLimit removes the token bucket filter of a device, and no other qdisc.
func removeLimit(h *netlink.Handle, device int) error {
	all, err := buckets(h, device)
	if err != nil {
		return err
	}
	for _, q := range all {
		if err := h.QdiscDel(q); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// buckets returns the token bucket filters of a device, at most one.
func buckets(h *netlink.Handle, device int) ([]netlink.Qdisc, error) {
	dev, err := h.LinkByIndex(device)
	if err != nil {
		return nil, err
	}
	all, err := h.QdiscList(dev)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(q netlink.Qdisc) bool {
		return q.Type() != "tbf" || q.Attrs().Parent != netlink.HANDLE_ROOT
	}), nil
}
