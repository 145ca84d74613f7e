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

	"monopod/runner/ctrd/network/link"
)

// readHost reads devices, addresses and routes.
func readHost() (hostFacts, error) {
	links, err := link.Retry(netlink.LinkList)
	if err != nil {
		return hostFacts{}, fmt.Errorf("list devices: %w", err)
	}
	addrs, err := link.Retry(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return hostFacts{}, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := link.Retry(func() ([]netlink.Route, error) {
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

func devices(links []netlink.Link, addrs []netlink.Addr) []device {
	ports := map[int]int{}
	for _, l := range links {
		ports[l.Attrs().MasterIndex]++
	}
	held := map[int][]netip.Prefix{}
	for _, a := range addrs {
		if p, ok := link.Prefix(a.IPNet); ok {
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
		dst, ok := link.Prefix(r.Dst)
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
	dev, err := netlink.LinkByName(s.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		if dev, err = addBridge(s); errors.Is(err, os.ErrExist) {
			dev, err = netlink.LinkByName(s.name)
		}
	}
	if err == nil && dev.Attrs().Alias != s.alias && strings.HasPrefix(dev.Attrs().Alias, aliasPrefix) {
		err = errTaken
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", s.name, err)
	}
	if err := s.complete(dev); err != nil {
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
	dev, err := netlink.LinkByName(made)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(dev, s.alias); err != nil {
		return err
	}
	// An address that was set is kept; otherwise the bridge would change it with the ports that come and go,
	// and the pods' ARP entries of their gateway would be wrong.
	if err := netlink.LinkSetHardwareAddr(dev, dev.Attrs().HardwareAddr); err != nil {
		return err
	}
	return netlink.LinkSetName(dev, s.name)
}

// complete adds what the bridge lacks.
func (s bridgeSpec) complete(dev netlink.Link) error {
	if dev.Attrs().Alias == "" {
		if err := netlink.LinkSetAlias(dev, s.alias); err != nil {
			return fmt.Errorf("set alias: %w", err)
		}
	}
	lacks, err := s.lacks(dev)
	if err != nil {
		return err
	}
	for _, gw := range lacks.addrs {
		if err := link.AddAddr(dev, gw); err != nil {
			return fmt.Errorf("add address %s: %w", gw, err)
		}
	}
	if lacks.down {
		// Nobody else is on the bridge; detection of duplicates would keep it from asking for pods for a second or two.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+s.name+"/accept_dad", []byte("0"), 0)
		if err := netlink.LinkSetUp(dev); err != nil {
			return err
		}
	}
	if len(lacks.addrs) > 0 || lacks.down { // with which the kernel has made routes
		if err := link.Delivered(dev, lacks.addrs); err != nil {
			return err
		}
		if lacks, err = s.lacks(dev); err != nil {
			return err
		}
	}
	for _, c := range lacks.routes {
		dst := &net.IPNet{IP: c.Addr().AsSlice(), Mask: net.CIDRMask(c.Bits(), c.Addr().BitLen())}
		r := &netlink.Route{LinkIndex: dev.Attrs().Index, Dst: dst, Protocol: unix.RTPROT_KERNEL}
		if c.Addr().Is4() {
			r.Scope, r.Src = netlink.SCOPE_LINK, gateway(c).Addr().AsSlice()
		}
		if err := netlink.RouteAdd(r); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("add route %s: %w", c, err)
		}
	}
	return nil
}

// lacking is what a bridge of ours lacks.
type lacking struct {
	down   bool
	addrs  []netip.Prefix
	routes []netip.Prefix
}

// lacks compares the bridge with what it should be.
func (s bridgeSpec) lacks(dev netlink.Link) (lacking, error) {
	l := lacking{down: dev.Attrs().Flags&net.FlagUp == 0}
	if now, err := netlink.LinkByIndex(dev.Attrs().Index); err == nil {
		l.down = now.Attrs().Flags&net.FlagUp == 0
	}
	addrs, err := link.Retry(func() ([]netlink.Addr, error) { return netlink.AddrList(dev, netlink.FAMILY_ALL) })
	if err != nil {
		return l, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := link.Retry(func() ([]netlink.Route, error) { return netlink.RouteList(dev, netlink.FAMILY_ALL) })
	if err != nil {
		return l, fmt.Errorf("list routes: %w", err)
	}
	have, to := map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	for _, a := range addrs {
		p, _ := link.Prefix(a.IPNet)
		have[p] = true
	}
	for _, r := range routes {
		p, _ := link.Prefix(r.Dst)
		to[p] = true
	}
	for _, c := range s.cidrs {
		if gw := gateway(c); !have[gw] {
			l.addrs = append(l.addrs, gw)
		}
		if !to[c] {
			l.routes = append(l.routes, c)
		}
	}
	return l, nil
}

// deleteLink removes a device; one that is gone is no error.
func deleteLink(name string) error {
	dev, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(dev)
	}
	if err != nil {
		return fmt.Errorf("remove bridge %s: %w", name, err)
	}
	return nil
}
