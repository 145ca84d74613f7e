// Package link connects pods to the bridge: a veth pair with one end in the pod's network namespace, its addresses,
// routes and settings, by netlink.
//
// It owns no state, because all of it is in the kernel. It must not know pods beyond their namespace, nor decide what to repair.
package link

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Interface is the name of a pod's end.
const Interface = "eth0"

// HostPrefix begins the names of host ends. Other tools recognize container interfaces by "veth".
const HostPrefix = "vethmp"

// HostName returns the name of the host end of a sandbox.
func HostName(sandbox string) string {
	sum := sha256.Sum256([]byte(sandbox))
	return HostPrefix + hex.EncodeToString(sum[:])[:unix.IFNAMSIZ-1-len(HostPrefix)]
}

// Pod is the desired interface of a pod.
type Pod struct {
	// NetNS is the path of the namespace.
	NetNS string
	// Host is the name of the host end.
	Host string
	// Addrs are the addresses of the pod with the prefix lengths of their subnets, Gateways the default route for each address.
	Addrs    []netip.Prefix
	Gateways []netip.Addr
	// MTU is the MTU of both ends; 0: the kernel's default.
	MTU int
}

// mac derives the hardware address from an IP address, so that a recreated pair has the same one, and no neighbor has a stale entry.
func (p Pod) mac() net.HardwareAddr {
	b := p.Addrs[0].Addr().AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, b[len(b)-4:]...)
}

// Ends are the two ends of a pair as seen by the host.
type Ends struct {
	// Index is the index of the host end.
	Index int
	// NSID is the id of the pod's namespace in the host's; -1: none.
	NSID int
}

// Connect creates the pair, attaches it to the bridge and configures the pod's end. An existing pair is replaced. After an error no pair exists.
func Connect(p Pod, bridge int) (Ends, error) {
	ns, err := os.Open(p.NetNS)
	if err != nil {
		return Ends{}, err
	}
	defer ns.Close()
	veth, err := makePair(p, int(ns.Fd()), bridge)
	if errors.Is(err, os.ErrExist) {
		if err = Disconnect(p); err == nil {
			veth, err = makePair(p, int(ns.Fd()), bridge)
		}
	}
	if err != nil {
		return Ends{}, fmt.Errorf("create veth pair %s: %w", p.Host, err)
	}
	if err := errors.Join(raise(veth), In(p.NetNS, p.configure)); err != nil {
		return Ends{}, errors.Join(err, netlink.LinkDel(veth))
	}
	if err := carrier(veth.Index); err != nil {
		return Ends{}, errors.Join(err, netlink.LinkDel(veth))
	}
	ends := Ends{Index: veth.Index, NSID: -1}
	if id, err := netlink.GetNetNsIdByFd(int(ns.Fd())); err == nil {
		ends.NSID = id
	}
	return ends, nil
}

// carrier waits until the kernel reports both ends as up. Packets sent earlier are lost, and a lost ARP request costs a second.
func carrier(host int) error {
	return await("the link does not come up", func() (bool, error) {
		l, err := netlink.LinkByIndex(host)
		return err == nil && l.Attrs().OperState == netlink.OperUp, err
	})
}

// await polls the kernel until done returns true. failure is the error of a timeout.
func await(failure string, done func() (bool, error)) error {
	const step, patience = 200 * time.Microsecond, 5 * time.Second
	for began := time.Now(); time.Since(began) < patience; time.Sleep(step) {
		if ok, err := done(); ok || err != nil {
			return err
		}
	}
	return errors.New(failure)
}

func makePair(p Pod, ns, bridge int) (*netlink.Veth, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex = p.Host, p.MTU, bridge
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace, veth.PeerHardwareAddr, veth.PeerMTU = Interface, netlink.NsFd(ns), p.mac(), uint32(p.MTU)
	err := netlink.LinkAdd(veth)
	if err != nil && !errors.Is(err, os.ErrExist) && veth.Index > 0 {
		err = errors.Join(err, netlink.LinkDel(veth)) // made, but not attached
	}
	return veth, err
}

// raise brings the host end up, once it is configured.
func raise(veth netlink.Link) error {
	if err := errors.Join(IgnoreRouters(veth.Attrs().Name), netlink.LinkSetHairpin(veth, true)); err != nil {
		return err
	}
	return netlink.LinkSetUp(veth)
}

// configure configures the pod's end. The calling thread is in its namespace.
func (p Pod) configure() error {
	if err := p.settings(); err != nil {
		return err
	}
	eth, err := netlink.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("%s: %w", Interface, err)
	}
	return p.complete(eth)
}

// complete adds missing addresses and routes, and brings the end up.
func (p Pod) complete(eth netlink.Link) error {
	for _, a := range p.Addrs {
		if err := AddAddr(eth, a); err != nil {
			return fmt.Errorf("add address %s to %s: %w", a, Interface, err)
		}
	}
	if err := netlink.LinkSetUp(eth); err != nil {
		return fmt.Errorf("bring %s up: %w", Interface, err)
	}
	if err := Delivered(eth, p.Addrs); err != nil {
		return fmt.Errorf("%s: %w", Interface, err)
	}
	for _, gw := range p.Gateways {
		r := &netlink.Route{LinkIndex: eth.Attrs().Index, Gw: gw.AsSlice(), Dst: everything(gw)}
		if err := netlink.RouteAdd(r); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("add default route by %s: %w", gw, err)
		}
	}
	return nil
}

func everything(of netip.Addr) *net.IPNet {
	return &net.IPNet{IP: make(net.IP, of.BitLen()/8), Mask: net.CIDRMask(0, of.BitLen())}
}

// AddAddr adds an address, unless it exists.
func AddAddr(l netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		// The address is used nowhere else. Duplicate address detection would only delay the pod.
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(l, a); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// Delivered waits until the kernel delivers packets to these addresses of a link that is up. It adds the local route of an IPv6 address
// asynchronously, after the address can be used: the answer to an earlier packet would be dropped, and TCP would retransmit after a second.
func Delivered(l netlink.Link, addrs []netip.Prefix) error {
	for _, a := range addrs {
		if a.Addr().Is4() {
			continue
		}
		if err := hasLocalRoute(l, a.Addr()); err != nil {
			return err
		}
	}
	return nil
}

func hasLocalRoute(l netlink.Link, addr netip.Addr) error {
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL, LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(128, 128)}}
	return await("the kernel delivers nothing to "+addr.String(), func() (bool, error) {
		routes, err := Retry(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST)
		})
		return len(routes) > 0, err
	})
}

// settings sets the sysctls that the CNI plugin bridge sets (ADR 17), and makes the pod ignore routers, because any other pod could be one. A
// kernel may lack any, except those of IPv6 for an IPv6 address.
func (p Pod) settings() error {
	_ = write("ipv4/conf/"+Interface+"/arp_notify", "1")
	_ = write("ipv6/conf/"+Interface+"/accept_dad", "0")
	_ = write(acceptRA(Interface), "0")
	for _, a := range p.Addrs {
		if a.Addr().Is4() {
			continue
		}
		for _, s := range [][2]string{{"lo/disable_ipv6", "0"}, {Interface + "/disable_ipv6", "0"}, {Interface + "/keep_addr_on_down", "1"}} {
			if err := write("ipv6/conf/"+s[0], s[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// write sets a sysctl below net in the namespace of the calling thread.
func write(name, value string) error {
	f, err := os.OpenFile("/proc/sys/net/"+name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// Disconnect deletes the pair. It is idempotent.
func Disconnect(p Pod) error {
	err := Delete(p.Host)
	inside := In(p.NetNS, func() error { return Delete(Interface) })
	if errors.Is(inside, os.ErrNotExist) || errors.Is(inside, unix.EINVAL) {
		inside = nil // the namespace is gone, or a plain file after a reboot
	}
	return errors.Join(err, inside)
}

// Delete deletes an interface. A missing one is not an error.
func Delete(name string) error { return deleteFound(netlink.LinkByName(name)) }

// DeleteIndex deletes an interface by its index. A missing one is not an error: the kernel deletes those of a namespace with it, perhaps now.
func DeleteIndex(index int) error { return deleteFound(netlink.LinkByIndex(index)) }

func deleteFound(l netlink.Link, err error) error {
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if errors.As(err, &netlink.LinkNotFoundError{}) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Mute makes the bridge stop forwarding to a port whose namespace is about to be removed. Removing it takes time, during which nothing may
// answer for an address that is leased to another pod.
func Mute(port int) error {
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_BRIDGE)
	msg.Index = int32(port)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
	info.AddRtAttr(nl.IFLA_BRPORT_STATE, []byte{0}) // BR_STATE_DISABLED
	req.AddData(info)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil // it is gone, or no port of a bridge
	}
	return err
}

// Attach attaches a host end to the bridge again. The bridge may be a new one, so its hardware address is forgotten.
func Attach(p Pod, index, bridge int) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	if l.Attrs().MasterIndex != bridge {
		if err := netlink.LinkSetMasterByIndex(l, bridge); err != nil {
			return err
		}
	}
	_ = netlink.LinkSetIsolated(l, false) // old kernels cannot isolate ports
	return errors.Join(raise(l), In(p.NetNS, p.forgetGateways))
}

// forgetGateways makes the pod resolve the hardware addresses of its gateways again.
func (p Pod) forgetGateways() error {
	eth, err := netlink.LinkByName(Interface)
	if err != nil {
		return err
	}
	for _, gw := range p.Gateways {
		err := netlink.NeighDel(&netlink.Neigh{LinkIndex: eth.Attrs().Index, IP: gw.AsSlice()})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget gateway %s: %w", gw, err)
		}
	}
	return nil
}

// Complete adds what the pod's end lacks.
func Complete(p Pod) error { return In(p.NetNS, p.configure) }
