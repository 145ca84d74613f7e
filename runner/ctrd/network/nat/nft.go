package nat

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// NFT is the Backend for nftables, by netlink. It has a table per address family with two maps, in which a port is an element.
//
//	table ip monopod_ID {
//		map addressed { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service }
//		map ports     { type inet_proto . inet_service : ipv4_addr . inet_service }
//		chain raw         { hook prerouting priority raw; iifname BRIDGE ip daddr 127.0.0.0/8 drop }
//		chain open        { dnat to ip daddr . meta l4proto . th dport map @addressed; dnat to ... map @ports }
//		chain prerouting  { type nat hook prerouting priority dstnat; fib daddr type local jump open }
//		chain output      { type nat hook output priority dstnat; fib daddr type local jump open }
//		chain postrouting { type nat hook postrouting priority srcnat; ... masquerade }
//	}
type NFT struct{ cfg Config }

// Name implements Backend.
func (*NFT) Name() string { return NFTables }

const (
	// reg is the first of the 32-bit registers. Longer values occupy the following ones, too.
	reg = unix.NFT_REG32_00
	// chunk limits the elements of a message, whose attributes have at most 64 KiB.
	chunk = 200
	// dumpTries limits how often a dump is repeated that was interrupted by a change.
	dumpTries = 5
)

// plan is the desired table of an address family.
type plan struct {
	table            *nftables.Table
	addressed, ports *nftables.Set
	chains           []*nftables.Chain
	rules            []*nftables.Rule
}

// layout returns the table for a subnet.
func (b *NFT) layout(cidr netip.Prefix) plan {
	f := families[cidr.Addr().Is6()]
	t := &nftables.Table{Family: f.family, Name: b.cfg.Table()}
	target := nftables.MustConcatSetType(f.addr, nftables.TypeInetService)
	p := plan{
		table: t,
		addressed: &nftables.Set{
			ID: 1, Table: t, Name: "addressed", IsMap: true, Concatenation: true, DataType: target,
			KeyType: nftables.MustConcatSetType(f.addr, nftables.TypeInetProto, nftables.TypeInetService),
		},
		ports: &nftables.Set{
			ID: 2, Table: t, Name: "ports", IsMap: true, Concatenation: true, DataType: target,
			KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
		},
	}
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
		c := &nftables.Chain{Table: t, Name: name, Type: kind, Hooknum: hook, Priority: prio}
		p.chains = append(p.chains, c)
		return c
	}
	rule := func(c *nftables.Chain, what string, exprs ...[]expr.Any) {
		what += " by " + b.cfg.Bridge // another bridge makes other rules
		p.rules = append(p.rules, &nftables.Rule{
			Table: t, Chain: c, Exprs: slices.Concat(exprs...), UserData: userdata.AppendString(nil, userdata.TypeComment, what),
		})
	}
	open := chain("open", "", nil, nil)
	pre := chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	out := chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	post := chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)

	rule(open, "hostPorts of one address", f.lookup(p.addressed), f.dnat())
	rule(open, "hostPorts of all addresses", f.lookup(p.ports), f.dnat())
	rule(pre, "to this machine", toLocal(), jump(open))
	rule(out, "to this machine", toLocal(), jump(open))
	if cidr.Addr().Is4() {
		raw := chain("raw", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
		// route_localnet would let pods reach what listens on the host's loopback only.
		rule(raw, "no pod reaches the loopback addresses", iface(expr.MetaKeyIIFNAME, b.cfg.Bridge), f.addrIn(f.daddr, loopback(), expr.CmpOpEq), verdict(expr.VerdictDrop))
		rule(post, "hostPorts from this machine", iface(expr.MetaKeyOIFNAME, b.cfg.Bridge), f.addrIn(f.saddr, loopback(), expr.CmpOpEq), translated(), masquerade())
	}
	rule(post, "hostPorts from pods", iface(expr.MetaKeyOIFNAME, b.cfg.Bridge), f.addrIn(f.saddr, cidr, expr.CmpOpEq), translated(), masquerade())
	rule(post, "from pods to the world "+cidr.String(), f.addrIn(f.saddr, cidr, expr.CmpOpEq), f.addrIn(f.daddr, cidr, expr.CmpOpNeq),
		f.addrIn(f.daddr, multicast(cidr.Addr()), expr.CmpOpNeq), masquerade())
	return p
}

// number returns the number of a transport protocol.
func number(protocol string) byte {
	switch protocol {
	case UDP:
		return unix.IPPROTO_UDP
	case SCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}

// element is a port in one of the maps. Each part begins at a 32-bit word.
func element(p Port) nftables.SetElement {
	word := func(n uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, n), 0, 0) }
	key := slices.Concat([]byte{number(p.Protocol), 0, 0, 0}, word(p.HostPort))
	if p.HostIP.IsValid() {
		key = append(p.HostIP.AsSlice(), key...)
	}
	return nftables.SetElement{Key: key, Val: append(p.To.Addr().AsSlice(), word(p.To.Port())...)}
}

// elements are the elements by map.
func (p plan) elements(ports []Port) map[*nftables.Set][]nftables.SetElement {
	all := map[*nftables.Set][]nftables.SetElement{}
	for _, port := range ports {
		m := p.ports
		if port.HostIP.IsValid() {
			m = p.addressed
		}
		all[m] = append(all[m], element(port))
	}
	return all
}

// each calls f for the elements of each map, in chunks.
func each(all map[*nftables.Set][]nftables.SetElement, f func(*nftables.Set, []nftables.SetElement) error) error {
	for m, elements := range all {
		for part := range slices.Chunk(elements, chunk) {
			if err := f(m, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep sets the rules if they differ, with the open ports.
func (b *NFT) keep(context.Context) error {
	for _, cidr := range b.cfg.CIDRs {
		p := b.layout(cidr)
		ok, err := p.ruled()
		if err != nil || ok {
			if err != nil {
				return err
			}
			continue
		}
		open, err := p.open()
		if err != nil {
			return err
		}
		if err := p.replace(open); err != nil {
			return fmt.Errorf("nftables table %s: %w", b.cfg.Table(), err)
		}
	}
	return nil
}

// open returns the elements of both maps. A missing table or map has none.
func (p plan) open() (map[*nftables.Set][]nftables.SetElement, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	out := map[*nftables.Set][]nftables.SetElement{}
	for _, m := range []*nftables.Set{p.addressed, p.ports} {
		all, err := dump(func() ([]nftables.SetElement, error) { return c.GetSetElements(m) })
		if err != nil && !missing(err) {
			return nil, fmt.Errorf("list ports: %w", err)
		}
		for _, e := range all {
			out[m] = append(out[m], nftables.SetElement{Key: e.Key, Val: padded(e.Val)})
		}
	}
	return out, nil
}

// padded pads a key to a whole number of words, because the kernel may omit the padding.
func padded(b []byte) []byte { return append(slices.Clone(b), make([]byte, -len(b)&3)...) }

// Replace implements Backend, with a transaction per address family.
func (b *NFT) Replace(_ context.Context, ports []Port) error {
	for _, cidr := range b.cfg.CIDRs {
		p := b.layout(cidr)
		if err := p.replace(p.elements(unique(family(ports, cidr.Addr())))); err != nil {
			return fmt.Errorf("nftables table %s: %w", b.cfg.Table(), err)
		}
	}
	return nil
}

func (p plan) replace(ports map[*nftables.Set][]nftables.SetElement) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(p.table) // so that deleting it cannot fail for want of it
	c.DelTable(p.table)
	c.AddTable(p.table)
	for _, m := range []*nftables.Set{p.addressed, p.ports} {
		if err := c.AddSet(m, nil); err != nil {
			return err
		}
	}
	if err := each(ports, c.SetAddElements); err != nil {
		return err
	}
	for _, ch := range p.chains {
		c.AddChain(ch)
	}
	for _, r := range p.rules {
		c.AddRule(r)
	}
	return c.Flush()
}

// Change implements Backend.
func (b *NFT) Change(ctx context.Context, add, del, all []Port) error {
	del, replaced := change(del, all)
	if replaced {
		return b.Replace(ctx, all)
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, cidr := range b.cfg.CIDRs {
		p := b.layout(cidr)
		err := errors.Join(each(p.elements(family(del, cidr.Addr())), c.SetDeleteElements), each(p.elements(family(add, cidr.Addr())), c.SetAddElements))
		if err != nil {
			return err
		}
	}
	if err := c.Flush(); err == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	return b.Replace(ctx, all)
}

// Intact implements Backend.
func (b *NFT) Intact(_ context.Context, ports []Port) (bool, error) {
	for _, cidr := range b.cfg.CIDRs {
		ok, err := b.layout(cidr).intact(unique(family(ports, cidr.Addr())))
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (p plan) intact(ports []Port) (bool, error) {
	if ok, err := p.ruled(); !ok || err != nil {
		return false, err
	}
	have, err := p.open()
	if err != nil {
		return false, err
	}
	want := p.elements(ports)
	for _, m := range []*nftables.Set{p.addressed, p.ports} {
		if !maps.Equal(index(have[m]), index(want[m])) {
			return false, nil
		}
	}
	return true, nil
}

func index(all []nftables.SetElement) map[string]string {
	out := make(map[string]string, len(all))
	for _, e := range all {
		out[string(e.Key)] = string(e.Val)
	}
	return out
}

// ruled reports whether all chains have the expected rules, by the comments on the rules.
func (p plan) ruled() (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	for _, ch := range p.chains {
		have, err := dump(func() ([]*nftables.Rule, error) { return c.GetRules(p.table, ch) })
		if missing(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("list rules: %w", err)
		}
		var want []*nftables.Rule
		for _, r := range p.rules {
			if r.Chain == ch {
				want = append(want, r)
			}
		}
		if !slices.EqualFunc(have, want, func(a, b *nftables.Rule) bool { return bytes.Equal(a.UserData, b.UserData) }) {
			return false, nil
		}
	}
	return true, nil
}

// dump repeats a dump that was interrupted by a change.
func dump[T any](list func() ([]T, error)) (out []T, err error) {
	for range dumpTries {
		if out, err = list(); !is(err, unix.EINTR) {
			return out, err
		}
	}
	return nil, err
}

// Remove implements Backend.
func (b *NFT) Remove(context.Context) error {
	for _, cidr := range b.cfg.CIDRs {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		t := &nftables.Table{Family: families[cidr.Addr().Is6()].family, Name: b.cfg.Table()}
		c.AddTable(t) // so that deleting it cannot fail for want of it
		c.DelTable(t)
		if err := c.Flush(); err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("remove nftables table %s: %w", b.cfg.Table(), err)
		}
	}
	return nil
}

// CloseFor deletes all elements for the addresses of a pod, in the tables of all monopods. It is for pods whose ports are unknown.
func CloseFor(addrs []netip.Addr) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	if err != nil {
		return nil //nolint:nilerr // a kernel without nftables has no tables
	}
	for _, t := range tables {
		if len(t.Name) <= len(TablePrefix) || t.Name[:len(TablePrefix)] != TablePrefix {
			continue
		}
		for _, name := range []string{"addressed", "ports"} {
			m := &nftables.Set{Table: t, Name: name}
			elements, err := dump(func() ([]nftables.SetElement, error) { return c.GetSetElements(m) })
			if err != nil {
				continue // the map does not exist
			}
			stale := slices.DeleteFunc(elements, func(e nftables.SetElement) bool { return !leadsTo(e, addrs) })
			if len(stale) == 0 {
				continue
			}
			if err := c.SetDeleteElements(m, stale); err != nil {
				return err
			}
		}
	}
	return c.Flush()
}

func leadsTo(e nftables.SetElement, addrs []netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		b := a.AsSlice()
		return len(e.Val) >= len(b)+2 && len(e.Val) <= len(b)+4 && bytes.Equal(e.Val[:len(b)], b)
	})
}
