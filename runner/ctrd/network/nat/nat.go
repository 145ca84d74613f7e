// Package nat opens host ports for pods and masquerades what pods send to the world.
//
// It owns one nftables table per address family, named after the subnets, or, on a kernel without nftables, two
// iptables chains. It must not know pods, only ports and addresses. It has no goroutines.
package nat

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"monopod/runner/ctrd/network/xtables"
)

// Protocols of ports.
const (
	TCP  = "tcp"
	UDP  = "udp"
	SCTP = "sctp"
)

// Port is a host port that leads to a pod.
type Port struct {
	Protocol string
	// HostIP is the address of the host that it is open on; the zero Addr: all of the family of To.
	HostIP   netip.Addr
	HostPort uint16
	To       netip.AddrPort
}

// String is the port as in an error message.
func (p Port) String() string {
	host := "*"
	if p.HostIP.IsValid() {
		host = p.HostIP.String()
	}
	return fmt.Sprintf("%s/%s:%d -> %s", p.Protocol, host, p.HostPort, p.To)
}

// key is what may be there once.
type key struct {
	v6       bool
	protocol string
	ip       netip.Addr
	port     uint16
}

func (p Port) key() key { return key{p.To.Addr().Is6(), p.Protocol, p.HostIP, p.HostPort} }

// unique leaves out ports that others before them have taken.
func unique(ports []Port) []Port {
	seen := make(map[key]bool, len(ports))
	var out []Port
	for _, p := range ports {
		if !seen[p.key()] {
			seen[p.key()] = true
			out = append(out, p)
		}
	}
	return out
}

// change returns which elements change when ports are added and deleted. Those that another port keeps in use stay;
// replaced says that a port takes over one that is open.
func change(del, all []Port) (gone []Port, replaced bool) {
	users := make(map[key]int, len(all))
	for _, p := range all {
		users[p.key()]++
		replaced = replaced || users[p.key()] > 1
	}
	for _, p := range del {
		if users[p.key()] == 0 {
			gone = append(gone, p)
		}
	}
	return gone, replaced
}

// family returns the ports of one address family.
func family(ports []Port, of netip.Addr) []Port {
	var out []Port
	for _, p := range ports {
		if p.To.Addr().Is6() == of.Is6() {
			out = append(out, p)
		}
	}
	return out
}

// Config of a backend.
type Config struct {
	Bridge string
	// CIDRs are the pods' subnets, at most one of each family.
	CIDRs []netip.Prefix
	// ID is part of the names of tables and chains.
	ID string
}

// TablePrefix begins the names of all our nftables tables.
const TablePrefix = "monopod_"

// Table is the name of the nftables table.
func (c Config) Table() string { return TablePrefix + c.ID }

// Backend is one way to the kernel's packet filter. Calls are serialized by the caller.
type Backend interface {
	// Name is the name CNI plugins have for it.
	Name() string
	// Replace makes the rules and ports what they should be, whatever is there.
	Replace(ctx context.Context, ports []Port) error
	// Change adds and deletes some ports; all are those that there should be then, and of two that cannot be open at
	// the same time the first is. Where the rules are not as expected, it replaces them.
	Change(ctx context.Context, add, del, all []Port) error
	// Intact reports whether rules and ports are in place.
	Intact(ctx context.Context, ports []Port) (bool, error)
	// Remove takes everything away. It is idempotent.
	Remove(ctx context.Context) error
}

// The names of backends.
const (
	NFTables = "nftables"
	XTables  = "iptables"
)

// Choose returns the backend that works on this machine, with its rules in place. Ports that are open stay open: the
// caller does not know yet which pods run.
func Choose(ctx context.Context, cfg Config) (Backend, error) {
	nft := &NFT{cfg: cfg}
	nftErr := nft.keep(ctx)
	if nftErr == nil {
		// A version before this one masqueraded by iptables.
		return nft, (&IPTables{cfg: cfg}).Remove(ctx)
	}
	ipt := &IPTables{cfg: cfg}
	iptErr := ipt.keep(ctx)
	if iptErr == nil {
		return ipt, nil
	}
	return nil, fmt.Errorf("neither nftables nor iptables works here; enable nf_tables in the kernel or install iptables: %w", errors.Join(nftErr, iptErr))
}

// multicast is the range of a family that is never masqueraded.
func multicast(of netip.Addr) netip.Prefix {
	if of.Is6() {
		return netip.MustParsePrefix("ff00::/8")
	}
	return netip.MustParsePrefix("224.0.0.0/4")
}

// loopback are the addresses that connections of the host to itself come from.
func loopback() netip.Prefix { return netip.MustParsePrefix("127.0.0.0/8") }

// IPTables is a Backend for kernels without nftables. Each change of a port is one iptables-restore.
type IPTables struct{ cfg Config }

// NewIPTables returns the backend without looking whether another one works.
func NewIPTables(cfg Config) *IPTables { return &IPTables{cfg: cfg} }

// Name implements Backend.
func (*IPTables) Name() string { return XTables }

// set is all rules of one family.
func (b *IPTables) set(cidr netip.Prefix, ports []Port) xtables.Set {
	masq, open := "MONOPOD-MASQ-"+b.cfg.ID, "MONOPOD-PORT-"+b.cfg.ID
	leaving := []string{
		fmt.Sprintf("-s %s -o %s -m conntrack --ctstate DNAT -j MASQUERADE", cidr, b.cfg.Bridge),
		fmt.Sprintf("-s %s -d %s -j RETURN", cidr, multicast(cidr.Addr())),
		fmt.Sprintf("-s %s ! -d %s -j MASQUERADE", cidr, cidr),
	}
	if cidr.Addr().Is4() {
		leaving = append([]string{fmt.Sprintf("-s %s -o %s -m conntrack --ctstate DNAT -j MASQUERADE", loopback(), b.cfg.Bridge)}, leaving...)
	}
	var opened []string
	for _, p := range unique(family(ports, cidr.Addr())) {
		rule := "-p " + p.Protocol
		if p.HostIP.IsValid() {
			rule += " -d " + p.HostIP.String()
		}
		opened = append(opened, fmt.Sprintf("%s --dport %d -j DNAT --to-destination %s", rule, p.HostPort, p.To))
	}
	local := []string{"-m", "addrtype", "--dst-type", "LOCAL"}
	return xtables.Set{
		Tool:   xtables.Tool(cidr.Addr()),
		Chains: []xtables.Chain{{Table: "nat", Name: masq, Rules: leaving}, {Table: "nat", Name: open, Rules: opened}},
		Jumps: []xtables.Jump{
			{Table: "nat", From: "POSTROUTING", To: masq, At: xtables.Last},
			{Table: "nat", From: "PREROUTING", To: open, At: xtables.Last, Match: local},
			{Table: "nat", From: "OUTPUT", To: open, At: xtables.Last, Match: local},
		},
	}
}

// keep makes the rules unless the chains are there.
func (b *IPTables) keep(ctx context.Context) error {
	for _, c := range b.cfg.CIDRs {
		s := b.set(c, nil)
		if !s.Made(ctx) {
			if err := s.Apply(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Replace implements Backend.
func (b *IPTables) Replace(ctx context.Context, ports []Port) error {
	for _, c := range b.cfg.CIDRs {
		if err := b.set(c, ports).Apply(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Change implements Backend.
func (b *IPTables) Change(ctx context.Context, add, del, all []Port) error {
	for _, c := range b.cfg.CIDRs {
		if len(family(add, c.Addr()))+len(family(del, c.Addr())) == 0 {
			continue
		}
		if err := b.set(c, all).Refill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Intact implements Backend.
func (b *IPTables) Intact(ctx context.Context, ports []Port) (bool, error) {
	for _, c := range b.cfg.CIDRs {
		if !b.set(c, ports).Present(ctx) {
			return false, ctx.Err()
		}
	}
	return true, nil
}

// Remove implements Backend. Where the tool cannot list rules, because it or its table is missing, there are none.
func (b *IPTables) Remove(ctx context.Context) error {
	var errs []error
	for _, c := range b.cfg.CIDRs {
		if err := b.set(c, nil).Remove(ctx); err != nil && (ctx.Err() != nil || !errors.Is(err, xtables.ErrUnlisted)) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
