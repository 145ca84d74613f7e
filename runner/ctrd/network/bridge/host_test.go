package bridge

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func ipNet(s string) *net.IPNet {
	p := netip.MustParsePrefix(s)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func TestDevicesHaveTheirPortsAndAddresses(t *testing.T) {
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: 2}},
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "monopod0", Index: 3, Alias: AliasPrefix + "/x"}},
		&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vethmp1", Index: 4, MasterIndex: 3}},
		&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vethmp2", Index: 5, MasterIndex: 3}},
	}
	addrs := []netlink.Addr{
		{IPNet: ipNet("2001:db8::3/64"), LinkIndex: 3}, {IPNet: ipNet("2001:db8::2/64"), LinkIndex: 2}, // of router advertisements
		{IPNet: ipNet("10.88.0.1/16"), LinkIndex: 3}, {IPNet: ipNet("192.0.2.7/24"), LinkIndex: 2}, {IPNet: ipNet("fe80::1/64"), LinkIndex: 3, Flags: unix.IFA_F_PERMANENT}, {LinkIndex: 2},
	}
	want := []device{
		{Name: "eth0", Index: 2, Addrs: prefixes("2001:db8::2/64", "192.0.2.7/24")},
		{Name: "monopod0", Index: 3, Alias: AliasPrefix + "/x", Bridge: true, Ports: 2, Addrs: prefixes("10.88.0.1/16", "fe80::1/64")},
		{Name: "vethmp1", Index: 4},
		{Name: "vethmp2", Index: 5},
	}
	same := func(a, b device) bool {
		return a.Name == b.Name && a.Index == b.Index && a.Alias == b.Alias && a.Bridge == b.Bridge && a.Ports == b.Ports && slices.Equal(a.Addrs, b.Addrs)
	}
	if got := devices(links, addrs); !slices.EqualFunc(got, want, same) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

// TestRoutesThatASubnetCanOverlap: the local table repeats the addresses, and the MTU of pods is that of the way out.
func TestRoutesThatASubnetCanOverlap(t *testing.T) {
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: 2, MTU: 1400}}, &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "wg0", Index: 3, MTU: 1280}},
	}
	unicast := func(dst string, index, table int) netlink.Route {
		r := netlink.Route{LinkIndex: index, Table: table, Type: unix.RTN_UNICAST}
		if dst != "" {
			r.Dst = ipNet(dst)
		}
		return r
	}
	local := unicast("192.0.2.7/32", 2, unix.RT_TABLE_LOCAL)
	blackhole := unicast("10.9.0.0/16", 2, unix.RT_TABLE_MAIN)
	blackhole.Type = unix.RTN_BLACKHOLE
	var f Host
	f.addRoutes([]netlink.Route{
		local, blackhole, unicast("", 3, 51820), unicast("", 2, unix.RT_TABLE_MAIN), unicast("0.0.0.0/0", 3, unix.RT_TABLE_MAIN),
		unicast("10.1.0.0/16", 3, unix.RT_TABLE_MAIN), unicast("10.2.0.0/16", 0, unix.RT_TABLE_MAIN), unicast("10.3.0.0/16", 3, 51820),
	}, links)
	want := []route{
		{netip.MustParsePrefix("0.0.0.0/0"), "wg0"}, {netip.MustParsePrefix("10.1.0.0/16"), "wg0"}, {netip.MustParsePrefix("10.2.0.0/16"), ""}, {netip.MustParsePrefix("10.3.0.0/16"), "wg0"},
	}
	if !slices.Equal(f.Routes, want) || f.MTU != 1400 {
		t.Errorf("MTU %d, %+v\nwant\n%+v", f.MTU, f.Routes, want)
	}
}

func TestSettingsOfEachFamily(t *testing.T) {
	s := Spec{Name: "br0", CIDRs: prefixes("10.88.0.0/16", "fd00::/64")}
	want := []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/br0/route_localnet", "/proc/sys/net/ipv6/conf/all/forwarding"}
	if got := s.settings(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWhatPodsAdvertisedIsKnown: an attack from before must not remain after a repair, nor keep the bridge from being used.
func TestWhatPodsAdvertisedIsKnown(t *testing.T) {
	s := Spec{Name: "br0", CIDRs: prefixes("10.88.0.0/16", "fd00::/64")}
	addrs := []netlink.Addr{
		{IPNet: ipNet("10.88.0.1/16")}, {IPNet: ipNet("fd00::1/64"), Flags: unix.IFA_F_PERMANENT | unix.IFA_F_NODAD}, {IPNet: ipNet("2001:db8::3/64")},
	}
	route := func(dst string, protocol netlink.RouteProtocol) netlink.Route {
		return netlink.Route{Dst: ipNet(dst), Protocol: protocol, Family: netlink.FAMILY_V6}
	}
	routes := []netlink.Route{
		{Dst: ipNet("10.88.0.0/16"), Protocol: unix.RTPROT_KERNEL, Family: netlink.FAMILY_V4},
		{Dst: ipNet("0.0.0.0/0"), Protocol: unix.RTPROT_STATIC, Family: netlink.FAMILY_V4},
		route("fd00::/64", unix.RTPROT_KERNEL), route("fe80::/64", unix.RTPROT_KERNEL), route("ff00::/8", unix.RTPROT_KERNEL),
		route("2001:db8:1::/64", unix.RTPROT_STATIC), route("2001:db8::/64", unix.RTPROT_KERNEL), route("::/0", unix.RTPROT_RA), route("2000::/3", unix.RTPROT_RA),
	}
	want := []string{
		"address 2001:db8::3/64 was advertised by a pod", "route 2001:db8::/64 was advertised by a pod", "default route was advertised by a pod",
		"route 2000::/3 was advertised by a pod",
	}
	if got := s.learned(addrs, routes).damage(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
