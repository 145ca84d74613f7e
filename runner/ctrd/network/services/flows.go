package services

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/runner/service"
)

// stale matches the conntrack entries of UDP flows to frontends whose endpoints have changed. If these entries stayed, a client that keeps
// sending would never reach a new endpoint.
type stale struct {
	before, after map[service.Frontend][]netip.AddrPort
}

// forgetFlows deletes those entries if UDP frontends have changed.
func forgetFlows(v6 bool, have, now *want) error {
	s := stale{before: udp(have), after: udp(now)}
	if maps.EqualFunc(s.before, s.after, slices.Equal) {
		return nil
	}
	family := netlink.InetFamily(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, s)
	if errors.Is(err, unix.ENOENT) { // the flow has ended in the meantime
		return nil
	}
	return err
}

func udp(w *want) map[service.Frontend][]netip.AddrPort {
	out := map[service.Frontend][]netip.AddrPort{}
	if w == nil {
		return out
	}
	for f, to := range w.to {
		if f.Protocol == service.UDP {
			out[f] = to
		}
	}
	return out
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s stale) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	from, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP)
	if !ok || !ok2 {
		return false
	}
	to, from = to.Unmap(), from.Unmap()
	f := service.Frontend{Protocol: service.UDP, Addr: to, Port: flow.Forward.DstPort}
	all := netip.IPv4Unspecified()
	if to.Is6() {
		all = netip.IPv6Unspecified()
	}
	for _, at := range []netip.Addr{to, all} {
		f.Addr = at
		if ends, ok := s.after[f]; ok {
			return !slices.Contains(ends, netip.AddrPortFrom(from, flow.Reverse.SrcPort))
		}
		if _, ok := s.before[f]; ok {
			return true
		}
	}
	return false
}
