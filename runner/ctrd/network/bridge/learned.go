package bridge

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/network/link"
)

// learned are addresses and routes of the bridge from router advertisements, which only pods can have sent. They outlive the setting that
// allowed them.
type learned struct {
	addrs  []netlink.Addr
	routes []netlink.Route
}

// advertised reports whether an address is from a router advertisement: those that are configured are permanent.
func advertised(a netlink.Addr) bool {
	p, ok := link.Prefix(a.IPNet)
	return ok && p.Addr().Is6() && a.Flags&unix.IFA_F_PERMANENT == 0
}

// learned selects from the addresses and routes of the bridge. The kernel marks a route to an advertised prefix like those of configured
// addresses.
func (s Spec) learned(addrs []netlink.Addr, routes []netlink.Route) learned {
	var l learned
	for _, a := range addrs {
		if advertised(a) {
			l.addrs = append(l.addrs, a)
		}
	}
	for _, r := range routes {
		if r.Family != netlink.FAMILY_V6 {
			continue
		}
		p, ok := link.Prefix(r.Dst)
		own := ok && (p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast() || slices.Contains(s.CIDRs, p))
		if r.Protocol == unix.RTPROT_RA || r.Protocol == unix.RTPROT_KERNEL && !own {
			l.routes = append(l.routes, r)
		}
	}
	return l
}

// damage describes them.
func (l learned) damage() []string {
	var out []string
	for _, a := range l.addrs {
		out = append(out, fmt.Sprintf("address %s was advertised by a pod", a.IPNet))
	}
	for _, r := range l.routes {
		to := "default route"
		if p, ok := link.Prefix(r.Dst); ok && p.Bits() > 0 {
			to = "route " + p.String()
		}
		out = append(out, to+" was advertised by a pod")
	}
	return out
}

// remove removes them. The kernel removes some routes with their addresses.
func (l learned) remove() error {
	var errs []error
	for _, a := range l.addrs {
		dev := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: a.LinkIndex}}
		if err := netlink.AddrDel(dev, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("remove address %s: %w", a.IPNet, err))
		}
	}
	for _, r := range l.routes {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove route %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}
