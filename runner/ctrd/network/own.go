package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
)

// ownNet is the default network's part of the host.
type ownNet struct {
	bridge bridgeSpec
	filter *filter
	// lastIndex is the bridge's, when it was seen last.
	lastIndex atomic.Int64

	// rules lets one change of ports go on at a time.
	rules sync.Mutex
	nat   nat.Backend
}

// ensure makes the bridge and the rules where they are missing.
func (o *ownNet) ensure(ctx context.Context) error {
	if err := errors.Join(ensureBridge(o.bridge), o.bridge.forward()); err != nil {
		return err
	}
	if o.filter.present(ctx) {
		return nil
	}
	return o.filter.apply(ctx)
}

// forward turns on what pods need of the host's kernel: forwarding, and host ports on the loopback addresses.
func (s bridgeSpec) forward() error {
	for _, name := range s.settings() {
		if b, err := os.ReadFile(name); err == nil && len(b) > 0 && b[0] == '1' {
			continue
		}
		if err := os.WriteFile(name, []byte("1"), 0); err != nil {
			return fmt.Errorf("turn on forwarding: %w", err)
		}
	}
	return nil
}

// settings are files that say 1.
func (s bridgeSpec) settings() []string {
	var out []string
	for _, c := range s.cidrs {
		if c.Addr().Is4() {
			out = append(out, "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/"+s.name+"/route_localnet")
		} else {
			out = append(out, "/proc/sys/net/ipv6/conf/all/forwarding")
		}
	}
	return out
}

// index returns the bridge's, and makes it if need be.
func (o *ownNet) index() (int, error) {
	l, err := netlink.LinkByName(o.bridge.name)
	if err == nil && l.Attrs().Flags&net.FlagUp != 0 {
		return l.Attrs().Index, nil
	}
	if err := errors.Join(ensureBridge(o.bridge), o.bridge.forward()); err != nil {
		return 0, err
	}
	l, err = netlink.LinkByName(o.bridge.name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}

// pod describes how a pod with these addresses is connected.
func (n *Network) link(p Pod, addrs []netip.Prefix, mtu int) link.Pod {
	l := link.Pod{NetNS: p.NetNS, Host: link.HostName(p.SandboxID), Addrs: addrs, MTU: mtu}
	for _, a := range addrs {
		l.Gateways = append(l.Gateways, gateway(a.Masked()).Addr())
	}
	return l
}

// connect sets a pod up on the default network.
func (n *Network) connect(ctx context.Context, o *ownNet, p Pod) ([]string, error) {
	m := n.members.enter(p)
	defer m.work.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	addrs, err := n.leases.Acquire(p.SandboxID, o.bridge.cidrs)
	if err != nil {
		return nil, err
	}
	l, ports := n.link(p, addrs, o.bridge.mtu), portsOf(p, addrs)
	ends, err := o.connect(l, p.Bandwidth)
	if err != nil {
		return nil, err
	}
	n.members.change(func() { m.pod, m.link, m.ports, m.ends, m.ready = p, l, ports, ends, true })
	if err := n.openPorts(ctx, o, ports, nil); err != nil {
		return nil, err
	}
	var ips []string
	for _, a := range addrs {
		ips = append(ips, a.Addr().String())
	}
	return ips, nil
}

// connect makes the pair of a pod. The bridge may go meanwhile; it is made again once.
func (o *ownNet) connect(l link.Pod, b Bandwidth) (link.Ends, error) {
	var ends link.Ends
	for try := range 2 {
		bridge, err := o.index()
		if err != nil {
			return ends, err
		}
		if ends, err = link.Connect(l, bridge); err == nil {
			break
		}
		if _, gone := netlink.LinkByIndex(bridge); try > 0 || gone == nil {
			return ends, err
		}
	}
	if b == (Bandwidth{}) {
		return ends, nil
	}
	return ends, shape(l.NetNS, b)
}

// openPorts opens and closes host ports. Flows of UDP that the kernel remembers would go on to where they went before.
func (n *Network) openPorts(ctx context.Context, o *ownNet, add, del []nat.Port) error {
	if len(add)+len(del) == 0 {
		return nil
	}
	err := func() error {
		o.rules.Lock()
		defer o.rules.Unlock()
		return o.nat.Change(ctx, add, del, n.members.openPorts())
	}()
	if err != nil {
		return fmt.Errorf("host ports: %w", err)
	}
	n.forgetFlows(add)
	n.forgetFlows(del)
	return nil
}

// forgetFlows drops what the kernel remembers of UDP flows to ports. Without it a client that goes on sending would
// never reach another pod.
func (n *Network) forgetFlows(ports []nat.Port) {
	for _, p := range ports {
		if p.Protocol != nat.UDP {
			continue
		}
		family := netlink.InetFamily(unix.AF_INET)
		if p.To.Addr().Is6() {
			family = unix.AF_INET6
		}
		f := &netlink.ConntrackFilter{}
		err := errors.Join(f.AddProtocol(unix.IPPROTO_UDP), f.AddPort(netlink.ConntrackOrigDstPort, p.HostPort))
		if err == nil {
			_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			n.cfg.Log.Warn("flows to a UDP host port stay where they were", "port", p, "err", err)
		}
	}
}

// disconnect undoes connect, whatever is left of it, also for a pod that nothing but its leases is known of. The pair
// goes with its namespace: until then its port of the bridge is mute.
func (n *Network) disconnect(ctx context.Context, p Pod) error {
	m := n.members.leave(p.SandboxID)
	n.reports.forget(p.SandboxID)
	addrs, err := n.leases.Of(p.SandboxID)
	if err != nil || m == nil && len(addrs) == 0 {
		return err
	}
	var errs []error
	if err := n.mute(m, p); err != nil {
		errs = append(errs, fmt.Errorf("mute the port of the bridge: %w", err))
	}
	errs = append(errs, n.closePorts(ctx, m, p, addrs))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return n.leases.Release(p.SandboxID)
}

func (n *Network) mute(m *member, p Pod) error {
	index := 0
	if m != nil {
		n.members.change(func() { index = m.ends.Index })
	}
	if index > 0 {
		return link.Mute(index)
	}
	l, err := netlink.LinkByName(link.HostName(p.SandboxID))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	return link.Mute(l.Attrs().Index)
}

// closePorts closes those of a member, or whatever leads to the addresses of a pod that is none.
func (n *Network) closePorts(ctx context.Context, m *member, p Pod, addrs []netip.Addr) error {
	conf := n.active()
	switch {
	case m != nil && conf != nil && conf.own != nil:
		return n.openPorts(ctx, conf.own, nil, m.ports)
	case conf != nil && conf.own != nil && conf.own.nat.Name() != nat.NFTables:
		return n.openPorts(ctx, conf.own, nil, portsOf(p, hostPrefixes(addrs)))
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

// Adopt takes over pods that run since before this process: their ports are claimed, and those of the default network
// are watched and repaired. It is called once, before any Setup, with all pods that have a network.
func (n *Network) Adopt(pods []Pod) error {
	cidrs, err := parsePodCIDR(n.cfg.PodCIDR)
	if err != nil {
		cidrs = nil // Init has said so
	}
	mtu := 0
	if conf := n.active(); conf != nil && conf.own != nil {
		mtu = conf.own.bridge.mtu
	}
	var errs []error
	for _, p := range pods {
		errs = append(errs, n.claims.Keep(p.claim(n.cfg.DataDir)))
		addrs, err := n.leases.Of(p.SandboxID)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		within := prefixesIn(addrs, cidrs)
		if len(within) == 0 || len(within) != len(addrs) {
			continue // of a CNI configuration of the host, or of a former podCIDR
		}
		m := n.members.enter(p)
		n.members.change(func() {
			m.pod, m.link, m.ports, m.ready = p, n.link(p, within, mtu), portsOf(p, within), true
		})
		m.work.Unlock()
	}
	return errors.Join(errs...)
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

// claim is what the pod takes of the machine's ports.
func (p Pod) claim(owner string) hostports.Claim {
	c := hostports.Claim{Owner: owner, Pod: p.Namespace + "/" + p.Name, Sandbox: p.SandboxID, Pin: cmp.Or(p.Pin, p.NetNS)}
	for _, m := range hostPorts(p) {
		port := hostports.Port{Protocol: m.Protocol, Port: uint16(m.HostPort)}
		if ip, err := netip.ParseAddr(m.HostIP); err == nil && !ip.IsUnspecified() {
			port.IP = ip.Unmap()
		}
		c.Ports = append(c.Ports, port)
	}
	return c
}

// ClaimHost claims the ports of a pod on the host's network, whose processes open them themselves. Another monopod's pod
// that has one would answer instead: that is a *hostports.HeldError.
func (n *Network) ClaimHost(p Pod) error { return n.claims.Take(p.claim(n.cfg.DataDir), false) }

// Unclaim gives up what ClaimHost claimed.
func (n *Network) Unclaim(sandbox string) error { return n.claims.Drop(sandbox) }
