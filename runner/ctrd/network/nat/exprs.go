package nat

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// fam has the differences of an address family.
type fam struct {
	family       nftables.TableFamily
	addr         nftables.SetDatatype
	size         uint32
	saddr, daddr uint32
}

var families = map[bool]fam{ //nolint:gochecknoglobals // a table that never changes
	false: {nftables.TableFamilyIPv4, nftables.TypeIPAddr, 4, 12, 16},
	true:  {nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 16, 8, 24},
}

// lookup loads the key of a map and looks it up.
func (f fam) lookup(m *nftables.Set) []expr.Any {
	var exprs []expr.Any
	next := uint32(reg)
	if m.Name == "addressed" {
		exprs = append(exprs, &expr.Payload{DestRegister: next, Base: expr.PayloadBaseNetworkHeader, Offset: f.daddr, Len: f.size})
		next += f.size / 4
	}
	return append(exprs,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next},
		&expr.Payload{DestRegister: next + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: reg, DestRegister: reg, IsDestRegSet: true, SetName: m.Name, SetID: m.ID})
}

func (f fam) dnat() []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.family), RegAddrMin: reg, RegProtoMin: reg + f.size/4, Specified: true}}
}

// addrIn matches packets with an address inside, or outside, of a subnet.
func (f fam) addrIn(offset uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
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

func iface(key expr.MetaKey, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: padded}}
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

func masquerade() []expr.Any { return []expr.Any{&expr.Masq{}} }

func jump(to *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: to.Name}}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }
