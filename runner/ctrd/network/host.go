package network

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// readHost reads devices, addresses and routes.
func readHost() (hostFacts, error) {
	links, err := retryDump(netlink.LinkList)
	if err != nil {
		return hostFacts{}, fmt.Errorf("list devices: %w", err)
	}
	addrs, err := retryDump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return hostFacts{}, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := retryDump(func() ([]netlink.Route, error) {
		all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, all, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return hostFacts{}, fmt.Errorf("list routes: %w", err)
	}
	f := hostFacts{Devices: devices(links, addrs)}
	f.addRoutes(routes, links)
	return f, nil
}

// retryDump repeats a netlink dump that a change of the table has interrupted.
func retryDump[T any](list func() ([]T, error)) ([]T, error) {
	for range 10 {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}

func devices(links []netlink.Link, addrs []netlink.Addr) []device {
	ports := map[int]int{}
	for _, l := range links {
		ports[l.Attrs().MasterIndex]++
	}
	held := map[int][]netip.Prefix{}
	for _, a := range addrs {
		if p, ok := toPrefix(a.IPNet); ok {
			held[a.LinkIndex] = append(held[a.LinkIndex], p)
		}
	}
	out := make([]device, 0, len(links))
	for _, l := range links {
		at := l.Attrs()
		_, isBridge := l.(*netlink.Bridge)
		out = append(out, device{
			Name: at.Name, Index: at.Index, Alias: at.Alias, Bridge: isBridge, Ports: ports[at.Index], Addrs: held[at.Index],
		})
	}
	return out
}

func (f *hostFacts) addRoutes(routes []netlink.Route, links []netlink.Link) {
	byIndex := map[int]*netlink.LinkAttrs{}
	for _, l := range links {
		byIndex[l.Attrs().Index] = l.Attrs()
	}
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST || r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		dst, ok := toPrefix(r.Dst)
		dev := byIndex[r.LinkIndex]
		if (!ok || dst.Bits() == 0) && dev != nil && r.Table == unix.RT_TABLE_MAIN && f.MTU == 0 {
			f.MTU = dev.MTU
		}
		if !ok {
			continue
		}
		name := ""
		if dev != nil {
			name = dev.Name
		}
		f.Routes = append(f.Routes, route{Dst: dst, Device: name})
	}
}

func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if bits == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, ones), true
}

// bridgeSpec is the bridge as it should be.
type bridgeSpec struct {
	name, alias string
	mtu         int
	cidrs       []netip.Prefix
}

// errTaken says that another monopod has made the bridge since we chose its name.
var errTaken = errors.New("it belongs to another monopod")

// ensureBridge makes the bridge, up and with its addresses. Where it exists, only what is missing is added.
//
// It is made here and not by the plugin so that it carries our alias from its first moment: another monopod
// with the same subnet sees whose it is.
func ensureBridge(s bridgeSpec) error {
	link, err := netlink.LinkByName(s.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		if link, err = addBridge(s); errors.Is(err, os.ErrExist) {
			link, err = netlink.LinkByName(s.name)
		}
	}
	if err == nil && link.Attrs().Alias != s.alias && strings.HasPrefix(link.Attrs().Alias, aliasPrefix) {
		err = errTaken
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", s.name, err)
	}
	if err := s.complete(link); err != nil {
		return fmt.Errorf("bridge %s: %w", s.name, err)
	}
	return nil
}

// addBridge makes the bridge under a name of its own and renames it: whoever sees it sees whose it is. When there is one of that name
// now, the error is os.ErrExist.
func addBridge(s bridgeSpec) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = fmt.Sprintf("mpt-%08x", crc32.ChecksumIEEE([]byte(s.alias))), s.mtu
	if err := deleteLink(attrs.Name); err != nil { // what a killed process left
		return nil, err
	}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	err := finishBridge(attrs.Name, s)
	if err != nil {
		return nil, errors.Join(err, deleteLink(attrs.Name))
	}
	return netlink.LinkByName(s.name)
}

func finishBridge(made string, s bridgeSpec) error {
	link, err := netlink.LinkByName(made)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(link, s.alias); err != nil {
		return err
	}
	// An address that was set is kept; otherwise the bridge would change it with the ports that come and go,
	// and the pods' ARP entries of their gateway would be wrong.
	if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
		return err
	}
	return netlink.LinkSetName(link, s.name)
}

// complete adds what the bridge lacks.
func (s bridgeSpec) complete(link netlink.Link) error {
	if link.Attrs().Alias == "" {
		if err := netlink.LinkSetAlias(link, s.alias); err != nil {
			return fmt.Errorf("set alias: %w", err)
		}
	}
	addrs, err := retryDump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	have := map[netip.Prefix]bool{}
	for _, a := range addrs {
		p, _ := toPrefix(a.IPNet)
		have[p] = true
	}
	for _, c := range s.cidrs {
		if gw := gateway(c); !have[gw] {
			if err := addAddr(link, gw); err != nil {
				return fmt.Errorf("add address %s: %w", gw, err)
			}
		}
	}
	if link.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	return netlink.LinkSetUp(link)
}

func addAddr(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		// Nobody else is on the bridge; detection would only delay the first pod.
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, a); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// deleteLink removes a device; one that is gone is no error.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove bridge %s: %w", name, err)
	}
	return nil
}
