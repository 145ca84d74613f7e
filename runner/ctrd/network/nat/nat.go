// Package nat opens host ports for pods and masquerades their traffic to other networks.
//
// It owns one nftables table per address family, named after the subnets, or two iptables chains on a kernel without nftables. It must not know
// pods, only ports and addresses.
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

// Port is a host port that is forwarded to a pod.
type Port struct {
	Protocol string
	// HostIP is the address of the host on which it is open; the zero Addr: all of the address family of To.
	HostIP   netip.Addr
	HostPort uint16
	To       netip.AddrPort
}

// String returns the port as in an error message.
func (p Port) String() string {
	host := "*"
	if p.HostIP.IsValid() {
		host = p.HostIP.String()
	}
	return fmt.Sprintf("%s/%s:%d -> %s", p.Protocol, host, p.HostPort, p.To)
}

// key identifies a port that can be open only once.
type key struct {
	v6       bool
	protocol string
	ip       netip.Addr
	port     uint16
}

func (p Port) key() key { return key{p.To.Addr().Is6(), p.Protocol, p.HostIP, p.HostPort} }

// unique returns ports without those that an earlier one conflicts with.
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

// change returns which elements to add and delete for added and deleted ports. Elements that another port needs stay. replaced reports whether a
// port replaces an open one.
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

// family returns the ports of an address family.
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
	// CIDRs are the subnets of pods, at most one of each address family.
	CIDRs []netip.Prefix
	// ID is part of the names of tables and chains.
	ID string
}

// TablePrefix begins the names of the nftables tables of all monopods.
const TablePrefix = "monopod_"

// Table returns the name of the nftables table.
func (c Config) Table() string { return TablePrefix + c.ID }

// Backend accesses the packet filter of the kernel. Calls are serialized by the caller.
type Backend interface {
	// Name returns its name, as used by CNI plugins.
	Name() string
	// Replace sets rules and ports, whatever exists.
	Replace(ctx context.Context, ports []Port) error
	// Change adds and deletes ports; all are the desired ports after it. Of two conflicting ports the first is open. If the rules are not as
	// expected it replaces them.
	Change(ctx context.Context, add, del, all []Port) error
	// Intact reports whether rules and ports exist.
	Intact(ctx context.Context, ports []Port) (bool, error)
	// Remove removes rules and ports. It is idempotent.
	Remove(ctx context.Context) error
}

// The names of backends.
const (
	NFTables = "nftables"
	XTables  = "iptables"
)

// Choose returns the backend that works on this machine, with its rules set. Open ports stay open, because the caller does not know yet which
// pods run.
func Choose(ctx context.Context, cfg Config) (Backend, error) {
	nft := &NFT{cfg: cfg}
	nftErr := nft.keep(ctx)
	if nftErr == nil {
		// Remove the rules of an earlier run in which nftables did not work.
		return nft, (&IPTables{cfg: cfg}).Remove(ctx)
	}
	ipt := &IPTables{cfg: cfg}
	iptErr := ipt.keep(ctx)
	if iptErr == nil {
		return ipt, nil
	}
	return nil, fmt.Errorf("neither nftables nor iptables works here; enable nf_tables in the kernel or install iptables: %w", errors.Join(nftErr, iptErr))
}

// multicast returns the multicast range of an address family, which is never masqueraded.
func multicast(of netip.Addr) netip.Prefix {
	if of.Is6() {
		return netip.MustParsePrefix("ff00::/8")
	}
	return netip.MustParsePrefix("224.0.0.0/4")
}

// loopback returns the source addresses of connections of the host to itself.
func loopback() netip.Prefix { return netip.MustParsePrefix("127.0.0.0/8") }

// IPTables is a Backend for kernels without nftables. Each change of a port is one iptables-restore.
type IPTables struct{ cfg Config }

// NewIPTables returns the backend without checking whether another one works.
func NewIPTables(cfg Config) *IPTables { return &IPTables{cfg: cfg} }

// Name implements Backend.
func (*IPTables) Name() string { return XTables }

// set returns all rules of an address family.
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

// keep sets the rules unless the chains exist.
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

// Remove implements Backend. If the tool cannot list rules, because it or its table is missing, there are none.
func (b *IPTables) Remove(ctx context.Context) error {
	var errs []error
	for _, c := range b.cfg.CIDRs {
		if err := b.set(c, nil).Remove(ctx); err != nil && (ctx.Err() != nil || !errors.Is(err, xtables.ErrUnlisted)) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
