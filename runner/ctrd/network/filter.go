package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"monopod/runner/ctrd/network/xtables"
)

// filter lets pods' traffic through the chains FORWARD and INPUT of iptables, whose policy may be DROP (as Docker sets
// it), one set of rules for the whole subnet. In nftables no table can accept what another one drops, so it must be in
// iptables' own chains, and by its tools: whichever kernel interface they use, their rules stay readable to them.
// Where iptables does not work there is nothing to overrule; a host with its own nftables policy must accept the bridge.
type filter struct {
	sets []xtables.Set
	// legacy: the tools use an interface of the kernel that notifies nobody of changes.
	legacy bool
}

// filterConfig is what the rules depend on.
type filterConfig struct {
	bridge string
	cidrs  []netip.Prefix
	// resolver: pods may ask the bridge's addresses for names.
	resolver bool
	// loopback: nothing else keeps pods from the loopback addresses of the host.
	loopback bool
}

func forwardChain(cidrs []netip.Prefix) string { return "MONOPOD-FWD-" + subnetID(cidrs) }
func inputChain(cidrs []netip.Prefix) string   { return "MONOPOD-IN-" + subnetID(cidrs) }

// newFilter looks for the families for which iptables works.
func newFilter(ctx context.Context, c filterConfig) *filter {
	f := &filter{}
	for _, p := range c.cidrs {
		tool := xtables.Tool(p.Addr())
		if xtables.Usable(ctx, tool, "filter") == nil {
			f.sets = append(f.sets, c.set(p))
			f.legacy = f.legacy || xtables.Legacy(ctx, tool)
		}
	}
	return f
}

// set is the rules of one subnet. The jumps are first, or a rule that rejects the rest would hide them; rules that an
// administrator inserts later stay above.
func (c filterConfig) set(p netip.Prefix) xtables.Set {
	fwd, in := forwardChain(c.cidrs), inputChain(c.cidrs)
	s := xtables.Set{
		Tool: xtables.Tool(p.Addr()),
		Chains: []xtables.Chain{
			{Table: "filter", Name: fwd, Rules: []string{
				fmt.Sprintf("-i %s -s %s -j ACCEPT", c.bridge, p),
				fmt.Sprintf("-o %s -d %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", c.bridge, p),
				fmt.Sprintf("-o %s -d %s -m conntrack --ctstate DNAT -j ACCEPT", c.bridge, p), // hostPorts
			}},
			{Table: "filter", Name: in},
		},
		Jumps: []xtables.Jump{
			{Table: "filter", From: "FORWARD", To: fwd, At: xtables.First},
			{Table: "filter", From: "INPUT", To: in, At: xtables.First},
		},
	}
	rules := &s.Chains[1].Rules
	if c.loopback && p.Addr().Is4() {
		*rules = append(*rules, fmt.Sprintf("-i %s -d 127.0.0.0/8 -m conntrack --ctstate NEW,INVALID -j DROP", c.bridge))
	}
	if c.resolver {
		for _, protocol := range []string{"udp", "tcp"} {
			*rules = append(*rules, fmt.Sprintf("-i %s -s %s -d %s -p %s -m %[4]s --dport 53 -j ACCEPT", c.bridge, p, gateway(p).Addr(), protocol))
		}
	}
	return s
}

// present says whether all rules are in place.
func (f *filter) present(ctx context.Context) bool {
	for _, s := range f.sets {
		if !s.Present(ctx) {
			return false
		}
	}
	return true
}

// apply puts them in place, whatever is there of them.
func (f *filter) apply(ctx context.Context) error {
	for _, s := range f.sets {
		if err := s.Apply(ctx); err != nil {
			return fmt.Errorf("set firewall rules: %w", err)
		}
	}
	return nil
}

// remove takes them away.
func (f *filter) remove(ctx context.Context) error {
	var errs []error
	for _, s := range f.sets {
		errs = append(errs, s.Remove(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove firewall rules: %w", err)
	}
	return nil
}

// backend names the interface of the kernel that the rules are set through.
func (f *filter) backend() string {
	if len(f.sets) > 0 {
		return "iptables"
	}
	return "nftables"
}
