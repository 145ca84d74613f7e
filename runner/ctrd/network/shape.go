package network

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

const capBandwidth = "bandwidth"

// Bandwidth is what a pod may receive and send, in bits per second; 0: as much as it can.
type Bandwidth struct{ Ingress, Egress int64 }

// bandwidthEntry is a limit as CNI's conventions spell it.
type bandwidthEntry struct {
	IngressRate  int64 `json:"ingressRate,omitempty"`
	IngressBurst int64 `json:"ingressBurst,omitempty"`
	EgressRate   int64 `json:"egressRate,omitempty"`
	EgressBurst  int64 `json:"egressBurst,omitempty"`
}

func (b Bandwidth) entry() bandwidthEntry {
	e := bandwidthEntry{IngressRate: b.Ingress, EgressRate: b.Egress}
	if b.Ingress > 0 {
		e.IngressBurst = 8 * int64(burst(b.Ingress))
	}
	if b.Egress > 0 {
		e.EgressBurst = 8 * int64(burst(b.Egress))
	}
	return e
}

// burst is how many bytes may go at full speed after a pause: a tenth of a second's worth, but not less than a
// segmentation-offload packet, which would be cut up. The kubelet's is 512 MB, with which hardly anybody ever
// meets the limit.
func burst(bits int64) uint32 {
	return uint32(min(max(bits/8/10, 64<<10), math.MaxInt32))
}

// Shape makes the bandwidth of a pod that is set up on our own bridge what p says, also while it runs. The
// qdiscs sit at both ends of its veth pair and go with it, so there is nothing to tear down. A foreign
// configuration limits by a plugin of its own, and only when the pod is set up.
func (n *Network) Shape(p Pod) error {
	if conf := n.active(); conf == nil || conf.own == nil {
		return nil
	}
	if m := n.members.get(p.SandboxID); m != nil {
		m.work.Lock()
		defer m.work.Unlock()
		n.members.change(func() { m.pod.Bandwidth = p.Bandwidth }) // for a pair that has to be made again
	}
	if err := shape(p.NetNS, p.Bandwidth); err != nil {
		return fmt.Errorf("limit bandwidth of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// shape limits what the pod sends at its own end, and what it receives at the host's. A pod that could lift its own
// limit would need CAP_NET_ADMIN, which is as much in the hands of who writes the manifest as the limit is.
func shape(path string, b Bandwidth) error {
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

// limited says whether the limits of a pod are there. What cannot be read is not known to be missing.
func limited(path string, b Bandwidth) bool {
	if b == (Bandwidth{}) {
		return true
	}
	there := true
	err := ends(path, func(inside, host *netlink.Handle, eth *netlink.LinkAttrs) error {
		sent, err := buckets(inside, eth.Index)
		if err != nil {
			return err
		}
		received, err := buckets(host, eth.ParentIndex)
		there = (b.Egress == 0 || len(sent) > 0) && (b.Ingress == 0 || len(received) > 0)
		return err
	})
	return err != nil || there
}

// ends calls f with a way into the namespace of a pod, one into the host's, and the pod's end of the pair.
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
	eth, err := inside.LinkByName(podInterface)
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

// limit puts a token bucket on a device, or takes it away for 0 bits per second.
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

// removeLimit leaves qdiscs alone that are not ours.
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

// buckets are the token buckets on a device, of which there is one at most.
func buckets(h *netlink.Handle, device int) ([]netlink.Qdisc, error) {
	link, err := h.LinkByIndex(device)
	if err != nil {
		return nil, err
	}
	all, err := h.QdiscList(link)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(q netlink.Qdisc) bool {
		return q.Type() != "tbf" || q.Attrs().Parent != netlink.HANDLE_ROOT
	}), nil
}
