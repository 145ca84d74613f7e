// Package netinfo reads what the kernel says about the network of this machine: its addresses, and which process listens where.
//
// It changes nothing and has no goroutines.
package netinfo

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Addresses returns the addresses of this machine: the one that the default route uses first, IPv4 before
// IPv6, at most one of each. It is empty while there is no network.
func Addresses() ([]string, error) {
	var out []string
	// Connecting a UDP socket sends nothing: the kernel only chooses route and source address.
	for _, to := range []struct{ network, addr string }{{"udp4", "192.0.2.1:9"}, {"udp6", "[2001:db8::1]:9"}} {
		c, err := net.Dial(to.network, to.addr)
		if err != nil {
			continue // no route of this family
		}
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			out = append(out, a.AddrPort().Addr().Unmap().String())
		}
		c.Close()
	}
	if len(out) > 0 {
		return out, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of this machine: %w", err)
	}
	return Primary(all), nil
}

// Primary chooses the first usable address of each family, for machines without a default route.
func Primary(all []net.Addr) []string {
	var usable []netip.Addr
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().IsGlobalUnicast() {
			usable = append(usable, p.Addr().Unmap())
		}
	}
	var out []string
	for _, v4 := range []bool{true, false} {
		if i := slices.IndexFunc(usable, func(a netip.Addr) bool { return a.Is4() == v4 }); i >= 0 {
			out = append(out, usable[i].String())
		}
	}
	return out
}
