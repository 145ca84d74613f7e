package network

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"monopod/internal/cause"
)

const (
	defaultBridge = "monopod0"
	// aliasPrefix begins the alias of every bridge that a monopod made; the rest names which monopod.
	aliasPrefix = "monopod "
)

// parsePodCIDR reads "10.88.0.0/16", an IPv6 subnet, or one of each with a comma. IPv4 comes first in the result.
func parsePodCIDR(s string) ([]netip.Prefix, error) {
	var v4, v6 []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		p, err := parseSubnet(strings.TrimSpace(part))
		if err != nil {
			return nil, podCIDRError("podCIDR %q: %w", s, err)
		}
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	if len(v4) > 1 || len(v6) > 1 {
		return nil, podCIDRError("podCIDR %q: at most one subnet of each address family", s)
	}
	return append(v4, v6...), nil
}

func parseSubnet(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is no subnet such as 10.88.0.0/16", s)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s: write it as an IPv4 subnet", s)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits set behind its prefix; did you mean %s", s, p.Masked())
	case p.Addr().BitLen()-p.Bits() < 2:
		return p, fmt.Errorf("%s is too small: it must hold a gateway and at least one pod", s)
	case p.Bits() < 4 || p.Addr().IsUnspecified() || p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast():
		return p, fmt.Errorf("%s cannot be used for pods", s)
	}
	return p, nil
}

// gateway returns the bridge's address in a subnet: the first, as the bridge plugin chooses it.
func gateway(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr().Next(), p.Bits()) }

// subnetID is a short stable name for a set of subnets.
func subnetID(cidrs []netip.Prefix) string {
	h := sha256.New()
	for _, p := range cidrs {
		fmt.Fprintln(h, p)
	}
	return hex.EncodeToString(h.Sum(nil))[:6]
}

// device is a network interface of the host.
type device struct {
	Name   string
	Index  int
	Bridge bool
	// Alias says who made it.
	Alias string
	// Ports is how many interfaces are attached to a bridge.
	Ports int
	Addrs []netip.Prefix
}

// route is a unicast route of the host.
type route struct {
	Dst netip.Prefix
	// Device is empty for a route by several devices.
	Device string
}

// hostFacts are the parts of the host's network that matter for the choice of the pods' subnet.
type hostFacts struct {
	Devices []device
	Routes  []route
	// MTU is that of the device of the default route, 0 when there is none.
	MTU int
}

func (f hostFacts) device(name string) (device, bool) {
	for _, d := range f.Devices {
		if d.Name == name {
			return d, true
		}
	}
	return device{}, false
}

// without returns the facts as they are once a device is gone.
func (f hostFacts) without(name string) hostFacts {
	out := hostFacts{MTU: f.MTU}
	for _, d := range f.Devices {
		if d.Name != name {
			out.Devices = append(out.Devices, d)
		}
	}
	for _, r := range f.Routes {
		if r.Device != name {
			out.Routes = append(out.Routes, r)
		}
	}
	return out
}

// choice is the input of bridge selection.
type choice struct {
	cidrs []netip.Prefix
	// configured is the bridge of the configuration, stored that of our own conflist of an earlier run, when
	// that has the same subnets. Both may be empty.
	configured, stored string
	// owner is the alias of our bridges.
	owner string
}

// outdated returns our own bridges of a former podCIDR, or of another name, that carry no pods any more.
func (c choice) outdated(f hostFacts) []string {
	var names []string
	for _, d := range f.Devices {
		named := c.configured != "" && c.configured != d.Name
		if d.Bridge && d.Alias == c.owner && d.Ports == 0 && (named || !c.holdsOnlyOurs(d)) {
			names = append(names, d.Name)
		}
	}
	return names
}

// bridge names the bridge to use, or says why the subnets cannot be used on this host. An overlap that came up
// while pods run on our bridge (a VPN, say) is returned with the name: it must not take the pods' agent away.
func (c choice) bridge(f hostFacts) (string, error) {
	name := c.configured
	switch {
	case name != "":
	case c.stored != "":
		name = c.stored
	default:
		name = c.usual(f)
	}
	d, exists := f.device(name)
	usable := !exists || c.usable(d)
	others := f
	if usable {
		others = f.without(name)
	}
	if err := c.overlap(others); err != nil {
		if !usable || d.Ports == 0 || len(d.Addrs) == 0 {
			name = ""
		}
		return name, err
	}
	if !usable {
		return "", fmt.Errorf("bridge %s cannot be used for pods: %s; set bridge to another name", name, c.unusable(d))
	}
	return name, nil
}

// usual is the bridge when nobody says which one: that which has our gateway already, whatever it was called because of others
// on the host then, else the usual name, or one of its own when that is another's.
func (c choice) usual(f hostFacts) string {
	for _, d := range f.Devices {
		if d.Alias == c.owner && len(d.Addrs) > 0 && c.usable(d) {
			return d.Name
		}
	}
	if d, ok := f.device(defaultBridge); ok && !c.usable(d) {
		return "mp-" + subnetID(c.cidrs)
	}
	return defaultBridge
}

// usable says whether an existing device can serve as our bridge.
func (c choice) usable(d device) bool { return c.unusable(d) == "" }

func (c choice) unusable(d device) string {
	switch {
	case !d.Bridge:
		return "a device of that name exists and is no bridge"
	case d.Alias != c.owner && strings.HasPrefix(d.Alias, aliasPrefix):
		return "it belongs to another monopod (" + strings.TrimPrefix(d.Alias, aliasPrefix) + ")"
	case !c.holdsOnlyOurs(d):
		return fmt.Sprintf("it carries %v, which is not the gateway of podCIDR", d.Addrs)
	}
	return ""
}

// holdsOnlyOurs says whether a device has no addresses but our gateways.
func (c choice) holdsOnlyOurs(d device) bool {
	for _, a := range d.Addrs {
		ours := a.Addr().IsLinkLocalUnicast()
		for _, p := range c.cidrs {
			ours = ours || a == gateway(p)
		}
		if !ours {
			return false
		}
	}
	return true
}

// overlap returns an error for the first address or route that the subnets would take away from the host.
func (c choice) overlap(f hostFacts) error {
	const hint = "set podCIDR to a subnet that is free on this machine"
	for _, p := range c.cidrs {
		for _, d := range f.Devices {
			for _, a := range d.Addrs {
				if p.Overlaps(a.Masked()) {
					return podCIDRError("podCIDR %s overlaps the address %s of %s%s; %s", p, a, d.Name, owned(d, c.owner), hint)
				}
			}
		}
		for _, r := range f.Routes {
			// A default route, or the two halves of one as VPNs set them, is no claim on our subnet.
			if r.Dst.Bits() > 1 && p.Overlaps(r.Dst) {
				return podCIDRError("podCIDR %s overlaps the route %s by %s; %s", p, r.Dst, orSeveral(r.Device), hint)
			}
		}
	}
	return nil
}

func podCIDRError(format string, args ...any) error {
	return cause.Wrap(fmt.Errorf(format, args...), cause.Cause{Kind: cause.PodCIDR})
}

// owned explains a device that some monopod made.
func owned(d device, owner string) string {
	switch {
	case d.Alias == owner:
		return fmt.Sprintf(", which still has %d pods of this monopod under its former podCIDR", d.Ports)
	case strings.HasPrefix(d.Alias, aliasPrefix):
		return ", the bridge of another monopod (" + strings.TrimPrefix(d.Alias, aliasPrefix) + ")"
	}
	return ""
}

func orSeveral(device string) string {
	if device == "" {
		return "several devices"
	}
	return device
}
