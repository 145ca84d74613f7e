package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
)

// linkOf returns the desired link of a pod with these addresses.
func linkOf(p Pod, addrs []netip.Prefix, mtu int) link.Pod {
	l := link.Pod{NetNS: p.NetNS, Host: link.HostName(p.SandboxID), Addrs: addrs, MTU: mtu}
	for _, a := range addrs {
		l.Gateways = append(l.Gateways, bridge.Gateway(a.Masked()).Addr())
	}
	return l
}

// connect connects a pod to the default network and returns its addresses.
func (p *pods) connect(ctx context.Context, o *defaultNet, pod Pod) ([]string, error) {
	m := p.acquire(pod)
	defer m.opMu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	addrs, err := p.leases.Acquire(pod.SandboxID, o.bridge.CIDRs)
	if err != nil {
		return nil, err
	}
	l, ports := linkOf(pod, addrs, o.bridge.MTU), portsOf(pod, addrs)
	ends, err := o.connect(l, pod.Bandwidth)
	if err != nil {
		return nil, err
	}
	p.change(func() { m.pod, m.link, m.ports, m.ends, m.ready = pod, l, ports, ends, true })
	if err := p.changePorts(ctx, o, ports, nil); err != nil {
		return nil, err
	}
	var ips []string
	for _, a := range addrs {
		ips = append(ips, a.Addr().String())
	}
	return ips, nil
}

// changePorts opens and closes host ports, and drops the UDP flows to them that the kernel tracks.
func (p *pods) changePorts(ctx context.Context, o *defaultNet, add, del []nat.Port) error {
	if len(add)+len(del) == 0 {
		return nil
	}
	err := func() error {
		o.rules.Lock()
		defer o.rules.Unlock()
		return o.nat.Change(ctx, add, del, p.openPorts())
	}()
	if err != nil {
		return fmt.Errorf("host ports: %w", err)
	}
	p.forgetFlows(add)
	p.forgetFlows(del)
	return nil
}

// forgetFlows drops the conntrack entries of UDP flows to ports. Otherwise a client that continues to send would never reach another pod.
func (p *pods) forgetFlows(ports []nat.Port) {
	for _, port := range ports {
		if port.Protocol != nat.UDP {
			continue
		}
		family := netlink.InetFamily(unix.AF_INET)
		if port.To.Addr().Is6() {
			family = unix.AF_INET6
		}
		f := &netlink.ConntrackFilter{}
		err := errors.Join(f.AddProtocol(unix.IPPROTO_UDP), f.AddPort(netlink.ConntrackOrigDstPort, port.HostPort))
		if err == nil {
			_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			p.log.Warn("UDP flows to a host port cannot be dropped", "port", port, "err", err)
		}
	}
}

// disconnect closes the ports of a pod and releases its addresses, also if only its leases are known. The veth pair disappears with its
// namespace; until then its port of the bridge is muted. o is nil if the default network is not in use.
func (p *pods) disconnect(ctx context.Context, o *defaultNet, pod Pod) error {
	m := p.release(pod.SandboxID)
	addrs, err := p.leases.Of(pod.SandboxID)
	if err != nil || m == nil && len(addrs) == 0 {
		return err
	}
	var errs []error
	if err := p.mute(m, pod); err != nil {
		errs = append(errs, fmt.Errorf("mute the port of the bridge: %w", err))
	}
	errs = append(errs, p.closePorts(ctx, o, m, pod, addrs))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.leases.Release(pod.SandboxID)
}

func (p *pods) mute(m *podEntry, pod Pod) error {
	index := 0
	if m != nil {
		p.change(func() { index = m.ends.Index })
	}
	if index > 0 {
		return link.Mute(index)
	}
	l, err := netlink.LinkByName(link.HostName(pod.SandboxID))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	return link.Mute(l.Attrs().Index)
}

// closePorts closes the ports of an entry, or all that are forwarded to the addresses of a pod that is not one.
func (p *pods) closePorts(ctx context.Context, o *defaultNet, m *podEntry, pod Pod, addrs []netip.Addr) error {
	switch {
	case m != nil && o != nil:
		return p.changePorts(ctx, o, nil, m.ports)
	case o != nil && o.nat.Name() != nat.NFTables:
		return p.changePorts(ctx, o, nil, portsOf(pod, hostPrefixes(addrs)))
	case len(addrs) > 0:
		return nat.CloseFor(addrs)
	}
	return nil
}

func hostPrefixes(addrs []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// adopt adds a pod that was connected by an earlier process. A pod with addresses outside of the subnets is ignored: it was connected by a CNI
// configuration of the host, or with a former podCIDR.
func (p *pods) adopt(pod Pod, cidrs []netip.Prefix, mtu int) error {
	addrs, err := p.leases.Of(pod.SandboxID)
	if err != nil {
		return err
	}
	within := prefixesIn(addrs, cidrs)
	if len(within) == 0 || len(within) != len(addrs) {
		return nil
	}
	m := p.acquire(pod)
	p.change(func() { m.pod, m.link, m.ports, m.ready = pod, linkOf(pod, within, mtu), portsOf(pod, within), true })
	m.opMu.Unlock()
	return nil
}

func prefixesIn(addrs []netip.Addr, cidrs []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range addrs {
		for _, c := range cidrs {
			if c.Contains(a) {
				out = append(out, netip.PrefixFrom(a, c.Bits()))
			}
		}
	}
	return out
}

// limit sets the bandwidth of a pod, also while it runs.
func (p *pods) limit(pod Pod) error {
	if m := p.get(pod.SandboxID); m != nil {
		m.opMu.Lock()
		defer m.opMu.Unlock()
		p.change(func() { m.pod.Bandwidth = pod.Bandwidth }) // for a repair of the pair
	}
	return bandwidth.Apply(pod.NetNS, pod.Bandwidth)
}
