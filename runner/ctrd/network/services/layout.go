package services

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"monopod/runner/service"
)

// layout is the table of an address family. Services are elements of maps, not rules, so that the time per packet does not grow with their
// number:
//
//	table ip monopod-services-ID {
//		map services    { type ipv4_addr . inet_proto . inet_service : verdict }                  # frontend: goto spread-3
//		map endpoints-0 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service } # frontend: its first endpoint
//		map endpoints-1 ...                                                                       # and so on, up to the largest Service
//		set refused     { type ipv4_addr . inet_proto . inet_service }                            # frontends without endpoints
//		...             node-services, node-endpoints-0 ... and node-refused, without the address: ports of this machine
//		set ips         { type ipv4_addr }                                                        # cluster IPs
//		set pods        { type ipv4_addr . ipv4_addr }                                            # endpoints that reach themselves
//		map limited     { type ipv4_addr . inet_proto . inet_service : verdict }                  # frontend: goto from-C
//		chain spread-3    { numgen random mod 3 0 goto endpoint-0; numgen random mod 2 0 goto endpoint-1; goto endpoint-2 }
//		chain endpoint-0  { dnat ip to ip daddr . meta l4proto . th dport map @endpoints-0 }
//		chain find        { ... vmap @services; fib daddr type local ... vmap @node-services }
//		chain from-C      { ip saddr 192.0.2.0/24 return; drop }                                  # loadBalancerSourceRanges
//		chain clients, local-clients { type filter hook prerouting, output priority dstnat - 10; ct state new ... vmap @limited }
//		chain prerouting  { type nat hook prerouting priority dstnat; ip saddr != PODS ip daddr @ips return; jump find }
//		chain output      { type nat hook output priority dstnat; jump find }
//		chain postrouting { type nat hook postrouting priority srcnat; ct status dnat ip saddr . ip daddr @pods masquerade }
//		chain refuse      { ip daddr @ips reject; ... @refused reject; fib daddr type local ... @node-refused reject }
//		chain input, forward, local { type filter hook input, forward, output priority -1; jump refuse; ... }
//		chain unallocated { reject }                                                              # other addresses of serviceSubnet
//		... forward: ip saddr PODS ip daddr RANGE ct state new goto unallocated; local: fib daddr type != local ... goto unallocated
//	}
//
// A frontend with session affinity has its own chain, and so do its endpoints, each with a set of its clients:
//
//	set to-B       { type ipv4_addr; size 16384; flags dynamic,timeout }
//	chain sticky-A { ip saddr @to-B goto to-B; ... numgen random mod 3 0 goto to-B; ... }
//	chain to-B     { update @to-B { ip saddr timeout 3h }; meta l4proto tcp dnat to ADDRESS:PORT }
//
// Only expressions are used that nft can print without crashing, and can read back: firewalls save all tables and load them at boot. So map
// keys contain no plain numbers, for which nft has no type name.
type layout struct {
	want        *want
	f           fam
	table       *nftables.Table
	addrs, node frontendMaps
	ips, itself *nftables.Set
	limited     *nftables.Set
	// sets are all sets but those of clients, which are in remember by name.
	sets     []*nftables.Set
	remember map[string]*nftables.Set
	chains   []*nftables.Chain
	// rules are the rules by chain.
	rules map[string][]*nftables.Rule
}

// frontendMaps has the sets for one kind of frontends.
type frontendMaps struct {
	// node reports that keys have no address.
	node              bool
	services, refused *nftables.Set
	// endpoints are the maps by endpoint number.
	endpoints []*nftables.Set
}

const (
	// reg is the first of the 16 32-bit registers. Longer values also occupy the following ones.
	reg = unix.NFT_REG32_00
	// chunk limits the elements per message, whose attributes are limited to 64 KiB.
	chunk = 200
	// dumpTries limits how often a dump is repeated that was interrupted by a change.
	dumpTries = 5
	// maxClients limits the clients per endpoint with session affinity.
	maxClients = 16384
)

// fam has the differences of an address family.
type fam struct {
	v6           bool
	family       nftables.TableFamily
	addr         nftables.SetDatatype
	size         uint32
	saddr, daddr uint32
	icmp         expr.Reject
}

func familyOf(v6 bool) fam {
	if v6 {
		return fam{true, nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 16, 8, 24, expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 4}}
	}
	return fam{false, nftables.TableFamilyIPv4, nftables.TypeIPAddr, 4, 12, 16, expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}}
}

// registers is the number of registers of an address.
func (f fam) registers() uint32 { return f.size / 4 }

// layout returns the table for the wanted content.
func (r *Rules) layout(v6 bool, w *want) *layout {
	f := familyOf(v6)
	t := &nftables.Table{Family: f.family, Name: r.cfg.Table}
	l := &layout{want: w, f: f, table: t, remember: map[string]*nftables.Set{}, rules: map[string][]*nftables.Rule{}}
	l.addrs = l.side(false, len(w.addrs.endpoints), f.addr, nftables.TypeInetProto, nftables.TypeInetService)
	l.node = l.side(true, len(w.node.endpoints), nftables.TypeInetProto, nftables.TypeInetService)
	l.ips = l.set(&nftables.Set{Name: "ips", KeyType: f.addr})
	l.itself = l.set(&nftables.Set{Name: "pods", Concatenation: true, KeyType: nftables.MustConcatSetType(f.addr, f.addr)})
	for _, name := range slices.Sorted(maps.Keys(w.spreads)) {
		l.balance(name, w.spreads[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.sticky)) {
		l.sticky(name, w.sticky[name])
	}
	l.limit()
	l.translate(r.cfg.Pods)
	l.refuse(r.cfg.Pods)
	return l
}

// set adds a set.
func (l *layout) set(s *nftables.Set) *nftables.Set {
	s.Table, s.ID = l.table, uint32(len(l.sets)+1)
	l.sets = append(l.sets, s)
	return s
}

// side adds the sets of frontends with up to a number of endpoints, and a chain for each number.
func (l *layout) side(node bool, most int, frontend ...nftables.SetDatatype) frontendMaps {
	of := frontendMaps{node: node}
	key, target := nftables.MustConcatSetType(frontend...), nftables.MustConcatSetType(l.f.addr, nftables.TypeInetService)
	of.services = l.set(&nftables.Set{Name: of.name("services"), IsMap: true, Concatenation: true, KeyType: key, DataType: nftables.TypeVerdict})
	of.refused = l.set(&nftables.Set{Name: of.name("refused"), Concatenation: true, KeyType: key})
	for n := range most {
		m := l.set(&nftables.Set{Name: of.name(fmt.Sprintf("endpoints-%d", n)), IsMap: true, Concatenation: true, KeyType: key, DataType: target})
		of.endpoints = append(of.endpoints, m)
		l.rule(l.chain(of.endpointChain(n)), "the endpoint", l.f.frontend(of),
			[]expr.Any{&expr.Lookup{SourceRegister: reg, DestRegister: reg, IsDestRegSet: true, SetName: m.Name, SetID: m.ID}}, l.f.dnat())
	}
	return of
}

// name returns the name of a set or chain.
func (of frontendMaps) name(name string) string {
	if of.node {
		return "node-" + name
	}
	return name
}

// endpointChain is the name of the chain that leads to the endpoint with a number.
func (of frontendMaps) endpointChain(n int) string { return of.name(fmt.Sprintf("endpoint-%d", n)) }

func (l *layout) chain(name string) *nftables.Chain {
	c := &nftables.Chain{Table: l.table, Name: name}
	l.chains = append(l.chains, c)
	return c
}

func (l *layout) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	c := l.chain(name)
	c.Type, c.Hooknum, c.Priority = kind, hook, priority
	return c
}

func (l *layout) rule(c *nftables.Chain, what string, exprs ...[]expr.Any) {
	l.rules[c.Name] = append(l.rules[c.Name], &nftables.Rule{
		Table: l.table, Chain: c, Exprs: slices.Concat(exprs...), UserData: userdata.AppendString(nil, userdata.TypeComment, what),
	})
}

// of returns the sets of a kind of frontends.
func (l *layout) of(node bool) frontendMaps {
	if node {
		return l.node
	}
	return l.addrs
}

// random adds rules that jump to a random one of the chains.
func (l *layout) random(from *nftables.Chain, chains, names []string) {
	for n, to := range chains {
		var pick []expr.Any
		if left := len(chains) - n; left > 1 {
			pick = []expr.Any{
				&expr.Numgen{Register: reg, Modulus: uint32(left), Type: unix.NFT_NG_RANDOM},
				&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: make([]byte, 4)},
			}
		}
		l.rule(from, fmt.Sprintf("%d of %d: %s", n, len(chains), names[n]), pick, verdict(expr.VerdictGoto, to))
	}
}

// balance adds a chain that selects a random endpoint.
func (l *layout) balance(name string, s spread) {
	of := l.of(s.node)
	var chains []string
	for n := range s.count {
		chains = append(chains, of.endpointChain(n))
	}
	l.random(l.chain(name), chains, chains)
}

// sticky adds the chains of a frontend with session affinity, which does not apply to clients that no longer fit into a set.
func (l *layout) sticky(name string, p *service.Port) {
	f, c := l.f, l.chain(name)
	client := f.load(0, f.saddr)
	var chains, names []string
	for n, to := range p.To {
		s := &nftables.Set{
			Table: l.table, ID: uint32(100_000 + len(l.remember)), Name: endpointChain(p, to), HasTimeout: true, Dynamic: true, Size: maxClients, KeyType: f.addr,
		}
		l.remember[s.Name] = s
		chains, names = append(chains, s.Name), append(names, to.String())
		l.rule(c, fmt.Sprintf("%d: %s", n, to), client, []expr.Any{in(s)}, verdict(expr.VerdictGoto, s.Name))
		end := l.chain(s.Name)
		l.rule(end, "remember the client", client, []expr.Any{&expr.Dynset{
			SrcRegKey: reg, SetID: s.ID, SetName: s.Name, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: p.Sticky,
		}})
		at := to.Addr().AsSlice()
		l.rule(end, to.String(), protocol(protocolOf(p.Frontend)), []expr.Any{
			&expr.Immediate{Register: reg, Data: at}, &expr.Immediate{Register: reg + f.registers(), Data: binary.BigEndian.AppendUint16(nil, to.Port())},
		}, f.dnat())
	}
	l.random(c, chains, names)
}

// limit adds the chains that drop connections of clients that a frontend is not for, ahead of their translation.
func (l *layout) limit() {
	f := l.f
	key := nftables.MustConcatSetType(f.addr, nftables.TypeInetProto, nftables.TypeInetService)
	l.limited = l.set(&nftables.Set{Name: "limited", IsMap: true, Concatenation: true, KeyType: key, DataType: nftables.TypeVerdict})
	if len(l.want.from) == 0 {
		return // such chains cost time for each packet of the machine
	}
	for _, name := range slices.Sorted(maps.Keys(l.want.from)) {
		c := l.chain(name)
		for _, p := range l.want.from[name] {
			l.rule(c, "from "+p.String(), f.source(p, expr.CmpOpEq), verdict(expr.VerdictReturn, ""))
		}
		l.rule(c, "others", verdict(expr.VerdictDrop, ""))
	}
	before := new(*nftables.ChainPriorityNATDest - 10)
	for name, hook := range map[string]*nftables.ChainHook{"clients": nftables.ChainHookPrerouting, "local-clients": nftables.ChainHookOutput} {
		c := l.base(name, nftables.ChainTypeFilter, hook, before)
		l.rule(c, "clients of load balancers", fresh(), f.frontend(l.addrs), goTo(l.limited))
	}
}

// translate adds the chains that lead connections to endpoints.
func (l *layout) translate(pods []netip.Prefix) {
	f, find := l.f, l.chain("find")
	addr, node := f.frontend(l.addrs), f.frontend(l.node)
	l.rule(find, "an address of a Service", addr, goTo(l.addrs.services))
	l.rule(find, "a port of this machine", toLocal(), node, goTo(l.node.services))
	pre := l.base("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	for _, p := range pods {
		if p.Addr().Is6() == f.v6 {
			l.rule(pre, "not from "+p.String(), f.source(p, expr.CmpOpNeq), f.load(0, f.daddr), []expr.Any{in(l.ips)}, verdict(expr.VerdictReturn, ""))
		}
	}
	l.rule(pre, "to Services", verdict(expr.VerdictJump, find.Name))
	out := l.base("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	l.rule(out, "to Services", verdict(expr.VerdictJump, find.Name))
	post := l.base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	l.rule(post, "from an endpoint to itself", translated(), f.load(0, f.saddr), f.load(f.registers(), f.daddr), []expr.Any{in(l.itself), &expr.Masq{}})
}

// refuse adds the chains that refuse new connections without an endpoint. Packets of others are not looked at: one on its way to a client may
// go to a port of this machine that is also that of a Service, and one that conntrack takes for invalid still has the address of its Service.
func (l *layout) refuse(pods []netip.Prefix) {
	f, refuse := l.f, l.chain("refuse")
	reset := func(what string, match ...[]expr.Any) {
		m := slices.Concat(match...)
		l.rule(refuse, what+", TCP", protocol(unix.IPPROTO_TCP), m, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
		icmp := f.icmp
		l.rule(refuse, what, m, []expr.Any{&icmp})
	}
	l.rule(refuse, "a TCP connection that exists", underway(), verdict(expr.VerdictReturn, ""))
	reset("a port that the Service does not have", f.load(0, f.daddr), []expr.Any{in(l.ips)})
	key := f.frontend(l.addrs)
	reset("an address without endpoints", key, []expr.Any{in(l.addrs.refused)})
	key = f.frontend(l.node)
	reset("a port of this machine without endpoints", toLocal(), key, []expr.Any{in(l.node.refused)})
	before := new(*nftables.ChainPriorityFilter - 1)
	refusing := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		base := l.base(name, nftables.ChainTypeFilter, hook, before)
		l.rule(base, "new connections to Services", fresh(), verdict(expr.VerdictJump, refuse.Name))
		return base
	}
	refusing("input", nftables.ChainHookInput)
	refusing("local", nftables.ChainHookOutput)
	l.unallocated(pods, refusing("forward", nftables.ChainHookForward))
}

// unallocated adds the rules that refuse new connections of pods to addresses of the ranges that belong to no Service: they would leave by the
// default route and hang. kube-proxy drops them in the same hook; here the client fails at once. Connections that were translated, also by
// another instance or by kube-proxy, have another destination by now. Those of the machine and of others are left alone: the range may also be
// one of a network behind the default route.
func (l *layout) unallocated(pods []netip.Prefix, forward *nftables.Chain) {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p netip.Prefix) bool { return p.Addr().Is6() != l.f.v6 })
	if len(l.want.ranges) == 0 || len(pods) == 0 {
		return
	}
	f, refuse := l.f, l.chain("unallocated")
	l.rule(refuse, "TCP", protocol(unix.IPPROTO_TCP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
	l.rule(refuse, "others", []expr.Any{new(f.icmp)})
	to := verdict(expr.VerdictGoto, refuse.Name)
	for _, r := range l.want.ranges {
		what, match := "an address of no Service in "+r.String(), slices.Concat(f.destination(r), fresh())
		for _, p := range pods {
			l.rule(forward, what+" from "+p.String(), f.source(p, expr.CmpOpEq), match, to)
		}
	}
}

// load loads an address into a register.
func (f fam) load(at, offset uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: reg + at, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}}
}

// frontend loads the frontend key of a packet.
func (f fam) frontend(of frontendMaps) (exprs []expr.Any) {
	at := uint32(0)
	if !of.node {
		exprs = f.load(0, f.daddr)
		at = f.registers()
	}
	return append(exprs,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg + at},
		&expr.Payload{DestRegister: reg + at + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
}

// goTo goes to a chain that is looked up.
func goTo(m *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: m.Name, SetID: m.ID}}
}

// in matches elements of a set.
func in(s *nftables.Set) expr.Any {
	return &expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID}
}

// dnat translates to the loaded address and port.
func (f fam) dnat() []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.family), RegAddrMin: reg, RegProtoMin: reg + f.registers(), Specified: true}}
}

// source compares the source of packets with a subnet.
func (f fam) source(p netip.Prefix, op expr.CmpOp) []expr.Any { return f.within(f.saddr, p, op) }

// destination matches packets to a subnet.
func (f fam) destination(p netip.Prefix) []expr.Any { return f.within(f.daddr, p, expr.CmpOpEq) }

// within compares an address of packets with a subnet.
func (f fam) within(offset uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	mask := make([]byte, f.size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// toLocal matches packets to an address of this machine.
func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// protocol matches packets of a protocol.
func protocol(number byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}}}
}

// fresh matches packets of new connections.
func fresh() []expr.Any {
	isNew := binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW)
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: isNew, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// underway matches TCP packets that begin no connection. They are new to conntrack if it has not seen the beginning, as when it has just started.
func underway() []expr.Any {
	const syn, flags = 0x02, 0x17 // FIN, SYN, RST, ACK
	return append(protocol(unix.IPPROTO_TCP),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{flags}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{syn}})
}

// translated matches connections whose destination was translated.
func translated() []expr.Any {
	dstNAT := binaryutil.NativeEndian.PutUint32(1 << 5) // IPS_DST_NAT
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: dstNAT, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

// portWord encodes a port in a key, padded to a 32-bit word.
func portWord(n uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, n), 0, 0) }

func protocolOf(p service.Frontend) byte {
	if p.Protocol == service.UDP {
		return unix.IPPROTO_UDP
	}
	return unix.IPPROTO_TCP
}

func frontendKey(p service.Frontend) string {
	key := slices.Concat([]byte{protocolOf(p), 0, 0, 0}, portWord(p.Port))
	if !p.Addr.IsUnspecified() {
		key = append(p.Addr.AsSlice(), key...)
	}
	return string(key)
}

// target encodes an endpoint as a map value.
func target(to netip.AddrPort) string {
	return string(append(to.Addr().AsSlice(), portWord(to.Port())...))
}

// element returns an element of a set.
func element(s *nftables.Set, key, value string) nftables.SetElement {
	e := nftables.SetElement{Key: []byte(key)}
	switch {
	case s.DataType == nftables.TypeVerdict:
		e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: value}
	case value != "":
		e.Val = []byte(value)
	}
	return e
}

// contents are the elements of a set.
func (l *layout) contents(s *nftables.Set) map[string]string {
	for _, of := range []struct {
		frontendMaps
		content
	}{{l.addrs, l.want.addrs}, {l.node, l.want.node}} {
		switch s.Name {
		case of.frontendMaps.services.Name:
			return of.content.services
		case of.frontendMaps.refused.Name:
			return of.content.refused
		}
		for n, m := range of.frontendMaps.endpoints {
			if s.Name == m.Name {
				return of.content.endpoints[n]
			}
		}
	}
	switch s.Name {
	case l.ips.Name:
		return l.want.ips
	case l.limited.Name:
		return l.want.limited
	}
	return l.want.pods
}

// each calls f for elements in chunks.
func each(s *nftables.Set, all map[string]string, f func(*nftables.Set, []nftables.SetElement) error) error {
	for part := range slices.Chunk(slices.Sorted(maps.Keys(all)), chunk) {
		elements := make([]nftables.SetElement, 0, len(part))
		for _, key := range part {
			elements = append(elements, element(s, key, all[key]))
		}
		if err := f(s, elements); err != nil {
			return err
		}
	}
	return nil
}
