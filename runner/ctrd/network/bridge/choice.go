// Package bridge chooses and maintains the bridge of the default network: its name and subnets, so that they conflict with nothing on the host,
// its addresses, routes and sysctls. It must not know pods or firewall rules.
package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"monopod/internal/cause"
)

const (
	// DefaultBridge is the name of the bridge unless it is in use.
	DefaultBridge = "monopod0"
	// AliasPrefix begins the alias of each bridge of a monopod. The rest identifies which monopod.
	AliasPrefix = "monopod "
)

// ParsePodCIDR parses one IPv4 subnet such as "10.88.0.0/16", one IPv6 subnet, or both separated by a comma. It returns IPv4 first.
func ParsePodCIDR(s string) ([]netip.Prefix, error) {
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
		return p, fmt.Errorf("%q is not a subnet such as 10.88.0.0/16", s)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s: write it as an IPv4 subnet", s)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits set after its prefix; did you mean %s", s, p.Masked())
	case p.Addr().BitLen()-p.Bits() < 2:
		return p, fmt.Errorf("%s is too small: it must hold a gateway and at least one pod", s)
	case p.Bits() < 4 || p.Addr().IsUnspecified() || p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast():
		return p, fmt.Errorf("%s cannot be used for pods", s)
	}
	return p, nil
}

// Gateway returns the address of the bridge in a subnet: the first one, like the bridge plugin of CNI.
func Gateway(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr().Next(), p.Bits()) }

// SubnetID returns a short stable name for a set of subnets.
func SubnetID(cidrs []netip.Prefix) string {
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
	// Alias is the ifalias with which monopod marks its bridge.
	Alias string
	// Ports is the number of interfaces attached to a bridge.
	Ports int
	Addrs []netip.Prefix
}

// route is a unicast route of the host.
type route struct {
	Dst netip.Prefix
	// Device is empty for a route by several devices.
	Device string
}

// Host has the devices and routes of the host that the choice of bridge and subnet depends on.
type Host struct {
	Devices []device
	Routes  []route
	// MTU is the MTU of the device of the default route, or 0.
	MTU int
}

func (f Host) device(name string) (device, bool) {
	for _, d := range f.Devices {
		if d.Name == name {
			return d, true
		}
	}
	return device{}, false
}

// Without returns the host without a device.
func (f Host) Without(name string) Host {
	out := Host{MTU: f.MTU}
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

// Choice is the input of the choice of a bridge.
type Choice struct {
	CIDRs []netip.Prefix
	// Configured is the bridge of the configuration. Stored is the bridge of the last run if that had the same subnets; it is not used if
	// its name is taken. Both may be empty.
	Configured, Stored string
	// Owner is the alias of the bridges of this monopod.
	Owner string
}

// Outdated returns bridges of this monopod with another subnet or name and without pods.
func (c Choice) Outdated(f Host) []string {
	var names []string
	for _, d := range f.Devices {
		named := c.Configured != "" && c.Configured != d.Name
		if d.Bridge && d.Alias == c.Owner && d.Ports == 0 && (named || !c.holdsOnlyOurs(d)) {
			names = append(names, d.Name)
		}
	}
	return names
}

// Bridge returns the name of the bridge, or why the subnets cannot be used on this host. An overlap that appeared while pods run on the
// bridge, for example with a VPN, is returned together with the name, because it must not stop the agent.
func (c Choice) Bridge(f Host) (string, error) {
	name := c.Configured
	switch {
	case name != "":
	case c.Stored != "" && !c.taken(f, c.Stored):
		name = c.Stored
	default:
		name = c.usual(f)
	}
	d, exists := f.device(name)
	usable := !exists || c.usable(d)
	others := f
	if usable {
		others = f.Without(name)
	}
	if err := c.Overlap(others); err != nil {
		if !usable || d.Ports == 0 || len(d.Addrs) == 0 {
			name = ""
		}
		return name, err
	}
	if !usable {
		err := fmt.Errorf("bridge %s cannot be used for pods: %s; set bridgeName to another name", name, c.unusable(d))
		return "", cause.Wrap(err, cause.Cause{Kind: cause.Network, Fault: cause.BridgeName})
	}
	return name, nil
}

// usual returns the bridge without a configured or stored name: an existing bridge of this monopod with the gateway address, else
// DefaultBridge, or a unique name if that is in use.
func (c Choice) usual(f Host) string {
	for _, d := range f.Devices {
		if d.Alias == c.Owner && len(d.Addrs) > 0 && c.usable(d) {
			return d.Name
		}
	}
	if d, ok := f.device(DefaultBridge); ok && !c.usable(d) {
		return "mp-" + SubnetID(c.CIDRs)
	}
	return DefaultBridge
}

// taken reports whether a device of that name exists that is not ours and cannot be used. After a reboot, another monopod may start first and
// create a bridge with the name of ours.
func (c Choice) taken(f Host, name string) bool {
	d, exists := f.device(name)
	return exists && d.Alias != c.Owner && !c.usable(d)
}

// usable reports whether an existing device can be used as the bridge.
func (c Choice) usable(d device) bool { return c.unusable(d) == "" }

func (c Choice) unusable(d device) string {
	switch {
	case !d.Bridge:
		return "a device of that name exists and is not a bridge"
	case d.Alias != c.Owner && strings.HasPrefix(d.Alias, AliasPrefix):
		return "it belongs to another monopod (" + strings.TrimPrefix(d.Alias, AliasPrefix) + ")"
	case !c.holdsOnlyOurs(d):
		return fmt.Sprintf("it carries %v, which is not the gateway of podCIDR", d.Addrs)
	}
	return ""
}

// holdsOnlyOurs reports whether a device has no addresses except gateways of the subnets.
func (c Choice) holdsOnlyOurs(d device) bool {
	for _, a := range d.Addrs {
		ours := a.Addr().IsLinkLocalUnicast()
		for _, p := range c.CIDRs {
			ours = ours || a == Gateway(p)
		}
		if !ours {
			return false
		}
	}
	return true
}

// Overlap returns an error for the first address or route of the host that a subnet overlaps.
func (c Choice) Overlap(f Host) error {
	const hint = "set podCIDR to a subnet that is free on this machine"
	for _, p := range c.CIDRs {
		for _, d := range f.Devices {
			for _, a := range d.Addrs {
				if p.Overlaps(a.Masked()) {
					return podCIDRError("podCIDR %s overlaps the address %s of %s%s; %s", p, a, d.Name, owned(d, c.Owner), hint)
				}
			}
		}
		for _, r := range f.Routes {
			// Default routes, and the two halves of one that VPNs use, do not count.
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

// owned describes the owner of a bridge of a monopod, or returns "".
func owned(d device, owner string) string {
	switch {
	case d.Alias == owner:
		return fmt.Sprintf(", which still has %d pods of this monopod under its former podCIDR", d.Ports)
	case strings.HasPrefix(d.Alias, AliasPrefix):
		return ", the bridge of another monopod (" + strings.TrimPrefix(d.Alias, AliasPrefix) + ")"
	}
	return ""
}

func orSeveral(device string) string {
	if device == "" {
		return "several devices"
	}
	return device
}
