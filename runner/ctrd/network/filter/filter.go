// Package filter accepts the traffic of pods in the FORWARD and INPUT chains of iptables. It owns two chains of its own and the jumps to them; it
// must not modify other rules.
package filter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/xtables"
)

// Rules accept the traffic of pods, whose chains may have the policy DROP (Docker sets it), with one set of rules per subnet. A separate
// nftables table would not help, because no table can accept packets that another one drops. The rules are set by the iptables tools, so
// that these can read them with either kernel interface. Without iptables there is no such policy; a host with its own nftables policy must
// accept the bridge.
type Rules struct {
	Sets []xtables.Set
	// Legacy reports whether the tools use the old kernel interface, which does not report changes.
	Legacy bool
}

// Config determines the rules.
type Config struct {
	Bridge string
	CIDRs  []netip.Prefix
	// Resolver accepts DNS queries of pods to the addresses of the bridge.
	Resolver bool
	// API accepts connections of pods to the Kubernetes API at this address and port of the machine, with an unspecified address at those of the
	// bridge. The zero value: it does not listen for pods.
	API netip.AddrPort
	// Loopback blocks pods from the loopback addresses of the host, which otherwise the nftables rules of package nat do.
	Loopback bool
}

// ForwardChain returns the name of the chain for forwarded packets.
func ForwardChain(cidrs []netip.Prefix) string { return "MONOPOD-FWD-" + bridge.SubnetID(cidrs) }

// InputChain returns the name of the chain for packets to the host.
func InputChain(cidrs []netip.Prefix) string { return "MONOPOD-IN-" + bridge.SubnetID(cidrs) }

// New returns rules for the address families that iptables works for.
func New(ctx context.Context, c Config) *Rules {
	f := &Rules{}
	for _, p := range c.CIDRs {
		tool := xtables.Tool(p.Addr())
		if xtables.Usable(ctx, tool, "filter") == nil {
			f.Sets = append(f.Sets, c.set(p))
			f.Legacy = f.Legacy || xtables.Legacy(ctx, tool)
		}
	}
	return f
}

// set returns the rules of one subnet. The jumps are inserted first, before rules that reject the rest. Rules that an administrator inserts
// later stay above them.
func (c Config) set(p netip.Prefix) xtables.Set {
	fwd, in := ForwardChain(c.CIDRs), InputChain(c.CIDRs)
	s := xtables.Set{
		Tool: xtables.Tool(p.Addr()),
		Chains: []xtables.Chain{
			{Table: "filter", Name: fwd, Rules: []string{
				fmt.Sprintf("-i %s -s %s -j ACCEPT", c.Bridge, p),
				fmt.Sprintf("-o %s -d %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", c.Bridge, p),
				fmt.Sprintf("-o %s -d %s -m conntrack --ctstate DNAT -j ACCEPT", c.Bridge, p), // hostPorts
			}},
			{Table: "filter", Name: in},
		},
		Jumps: []xtables.Jump{
			{Table: "filter", From: "FORWARD", To: fwd, At: xtables.First},
			{Table: "filter", From: "INPUT", To: in, At: xtables.First},
		},
	}
	rules := &s.Chains[1].Rules
	if c.Loopback && p.Addr().Is4() {
		*rules = append(*rules, fmt.Sprintf("-i %s -d 127.0.0.0/8 -m conntrack --ctstate NEW,INVALID -j DROP", c.Bridge))
	}
	if c.Resolver {
		for _, protocol := range []string{"udp", "tcp"} {
			*rules = append(*rules, fmt.Sprintf("-i %s -s %s -d %s -p %s -m %[4]s --dport 53 -j ACCEPT", c.Bridge, p, bridge.Gateway(p).Addr(), protocol))
		}
	}
	if at := c.api(p); at.IsValid() {
		*rules = append(*rules, fmt.Sprintf("-i %s -s %s -d %s -p tcp -m tcp --dport %d -j ACCEPT", c.Bridge, p, at, c.API.Port()))
	}
	return s
}

// api returns the address at which pods of a subnet reach the API; invalid: they do not.
func (c Config) api(p netip.Prefix) netip.Addr {
	switch at := c.API.Addr(); {
	case !at.IsValid():
		return netip.Addr{}
	case at.IsUnspecified():
		return bridge.Gateway(p).Addr()
	case at.Is6() != p.Addr().Is6():
		return netip.Addr{}
	default:
		return at
	}
}

// Present reports whether all rules exist.
func (f *Rules) Present(ctx context.Context) bool {
	for _, s := range f.Sets {
		if !s.Present(ctx) {
			return false
		}
	}
	return true
}

// Apply sets the rules, whichever of them exist.
func (f *Rules) Apply(ctx context.Context) error {
	for _, s := range f.Sets {
		if err := s.Apply(ctx); err != nil {
			return fmt.Errorf("set firewall rules: %w", err)
		}
	}
	return nil
}

// Remove removes the rules.
func (f *Rules) Remove(ctx context.Context) error {
	var errs []error
	for _, s := range f.Sets {
		errs = append(errs, s.Remove(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove firewall rules: %w", err)
	}
	return nil
}

// Backend names the interface of the kernel that accepts the traffic of pods, for logs.
func (f *Rules) Backend() string {
	if len(f.Sets) > 0 {
		return "iptables"
	}
	return "nftables"
}
