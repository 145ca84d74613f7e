package bridge

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
	"monopod/runner/ctrd/network/repair"
)

// ReadHost reads the devices, addresses and routes of this network namespace.
func ReadHost() (Host, error) {
	links, err := link.Retry(netlink.LinkList)
	if err != nil {
		return Host{}, fmt.Errorf("list devices: %w", err)
	}
	addrs, err := link.Retry(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return Host{}, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := link.Retry(func() ([]netlink.Route, error) {
		all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, all, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return Host{}, fmt.Errorf("list routes: %w", err)
	}
	f := Host{Devices: devices(links, addrs)}
	f.addRoutes(routes, links)
	return f, nil
}

func devices(links []netlink.Link, addrs []netlink.Addr) []device {
	ports, ours := map[int]int{}, map[int]bool{}
	for _, l := range links {
		ports[l.Attrs().MasterIndex]++
		ours[l.Attrs().Index] = strings.HasPrefix(l.Attrs().Alias, AliasPrefix)
	}
	held := map[int][]netip.Prefix{}
	for _, a := range addrs {
		if p, ok := link.Prefix(a.IPNet); ok && (!ours[a.LinkIndex] || !advertised(a)) {
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

func (f *Host) addRoutes(routes []netlink.Route, links []netlink.Link) {
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

// Spec describes the bridge.
type Spec struct {
	// Alias identifies the monopod that owns it.
	Name, Alias string
	MTU         int
	CIDRs       []netip.Prefix
}

// ErrTaken reports that another monopod created a bridge of that name meanwhile.
var ErrTaken = errors.New("it belongs to another monopod")

// Ensure creates the bridge with its addresses, brings it up and enables forwarding. An existing bridge is completed.
func (s Spec) Ensure() error {
	return errors.Join(s.ensureDevice(), s.forward())
}

// ensureDevice creates or completes the bridge. The bridge plugin of CNI could not set the alias at creation; other monopods with the same
// subnet use it to recognize the owner.
func (s Spec) ensureDevice() error {
	dev, err := netlink.LinkByName(s.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		if dev, err = addBridge(s); errors.Is(err, os.ErrExist) {
			dev, err = netlink.LinkByName(s.Name)
		}
	}
	if err == nil && dev.Attrs().Alias != s.Alias && strings.HasPrefix(dev.Attrs().Alias, AliasPrefix) {
		err = ErrTaken
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", s.Name, err)
	}
	if err := errors.Join(s.complete(dev), link.IgnoreRoutersOn(dev.Attrs().Index)); err != nil {
		return fmt.Errorf("bridge %s: %w", s.Name, err)
	}
	return nil
}

// addBridge creates the bridge under a temporary name, and renames it when it has its alias. The error is os.ErrExist if the name is in use.
func addBridge(s Spec) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = fmt.Sprintf("mpt-%08x", crc32.ChecksumIEEE([]byte(s.Alias))), s.MTU
	if err := DeleteDevice(attrs.Name); err != nil { // left by a killed process
		return nil, err
	}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	err := finishBridge(attrs.Name, s)
	if err != nil {
		return nil, errors.Join(err, DeleteDevice(attrs.Name))
	}
	return netlink.LinkByName(s.Name)
}

func finishBridge(made string, s Spec) error {
	dev, err := netlink.LinkByName(made)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(dev, s.Alias); err != nil {
		return err
	}
	// Without an explicit hardware address the bridge takes that of one of its ports, and changes it with them, which makes the pods'
	// ARP entries for their gateway stale.
	if err := netlink.LinkSetHardwareAddr(dev, dev.Attrs().HardwareAddr); err != nil {
		return err
	}
	return netlink.LinkSetName(dev, s.Name)
}

// complete adds missing properties of an existing bridge.
func (s Spec) complete(dev netlink.Link) error {
	if dev.Attrs().Alias == "" {
		if err := netlink.LinkSetAlias(dev, s.Alias); err != nil {
			return fmt.Errorf("set alias: %w", err)
		}
	}
	if err := link.IgnoreRouters(s.Name); err != nil { // before it is up
		return err
	}
	lacks, err := s.lacks(dev)
	if err != nil {
		return err
	}
	if err := lacks.learned.remove(); err != nil {
		return err
	}
	for _, gw := range lacks.addrs {
		if err := link.AddAddr(dev, gw); err != nil {
			return fmt.Errorf("add address %s: %w", gw, err)
		}
	}
	if lacks.down {
		// Duplicate address detection would delay neighbor discovery by a second or two, and all addresses on the bridge are assigned here.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+s.Name+"/accept_dad", []byte("0"), 0)
		if err := netlink.LinkSetUp(dev); err != nil {
			return err
		}
	}
	if len(lacks.addrs) > 0 || lacks.down { // the kernel added routes with them
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
			r.Scope, r.Src = netlink.SCOPE_LINK, Gateway(c).Addr().AsSlice()
		}
		if err := netlink.RouteAdd(r); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("add route %s: %w", c, err)
		}
	}
	return nil
}

// lacking has the missing properties of an existing bridge.
type lacking struct {
	down   bool
	addrs  []netip.Prefix
	routes []netip.Prefix
	// learned is what it should not have.
	learned learned
}

// lacks compares an existing bridge with the Spec.
func (s Spec) lacks(dev netlink.Link) (lacking, error) {
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
	for _, c := range s.CIDRs {
		if gw := Gateway(c); !have[gw] {
			l.addrs = append(l.addrs, gw)
		}
		if !to[c] {
			l.routes = append(l.routes, c)
		}
	}
	l.learned = s.learned(addrs, routes)
	return l, nil
}

// DeleteDevice removes a device. A missing device is not an error.
func DeleteDevice(name string) error {
	if err := link.Delete(name); err != nil {
		return fmt.Errorf("remove bridge %s: %w", name, err)
	}
	return nil
}

// Index returns the index of the bridge, which it creates if necessary.
func (s Spec) Index() (int, error) {
	l, err := netlink.LinkByName(s.Name)
	if err == nil && l.Attrs().Flags&net.FlagUp != 0 {
		return l.Attrs().Index, nil
	}
	if err := s.Ensure(); err != nil {
		return 0, err
	}
	l, err = netlink.LinkByName(s.Name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}

// forward enables forwarding, and host ports on loopback addresses.
func (s Spec) forward() error {
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

// settings returns the sysctl files that must contain 1.
func (s Spec) settings() []string {
	var out []string
	for _, c := range s.CIDRs {
		if c.Addr().Is4() {
			out = append(out, "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/"+s.Name+"/route_localnet")
		} else {
			out = append(out, "/proc/sys/net/ipv6/conf/all/forwarding")
		}
	}
	return out
}

// Observe compares the bridge with the Spec, for package repair.
func (s Spec) Observe() (repair.Bridge, error) {
	dev, err := netlink.LinkByName(s.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return repair.Bridge{}, nil
	}
	if err != nil {
		return repair.Bridge{}, fmt.Errorf("bridge %s: %w", s.Name, err)
	}
	b := repair.Bridge{Index: dev.Attrs().Index}
	alias := dev.Attrs().Alias
	switch _, isBridge := dev.(*netlink.Bridge); {
	case !isBridge:
		b.Foreign = "a device of that name exists and is not a bridge; remove it"
		return b, nil
	case alias != s.Alias && strings.HasPrefix(alias, AliasPrefix):
		b.Foreign = "it belongs to another monopod (" + strings.TrimPrefix(alias, AliasPrefix) + ")"
		return b, nil
	}
	l, err := s.lacks(dev)
	if err != nil {
		return b, err
	}
	b.Down = l.down
	for _, a := range l.addrs {
		b.Lost = append(b.Lost, fmt.Sprintf("address %s was removed", a))
	}
	if len(l.addrs) == 0 && !l.down { // otherwise the kernel removed the routes with the addresses
		for _, r := range l.routes {
			b.Lost = append(b.Lost, fmt.Sprintf("route %s was removed", r))
		}
	}
	if link.HeedsRouters(s.Name) {
		b.Lost = append(b.Lost, "it heeded router advertisements")
	}
	b.Lost = append(b.Lost, l.learned.damage()...)
	for _, name := range s.settings() {
		if text, err := os.ReadFile(name); err == nil && len(text) > 0 && text[0] == '0' {
			b.Lost = append(b.Lost, name+" was 0")
		}
	}
	return b, nil
}
