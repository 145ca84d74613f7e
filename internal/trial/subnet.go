package trial

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Sizes of the subnet of one run.
const (
	runBits4 = 24
	runBits6 = 64
)

// Subnet returns the i-th subnet of a pool that has room for many: an IPv4 subnet, an IPv6 one, or one of each with a
// comma between. A part that is no larger than one run needs is used as it is. ok is false when there is no i-th.
func Subnet(pool string, i int) (subnet string, ok bool, err error) {
	var parts []string
	more := i == 0 // a pool that cannot be divided has one subnet
	for part := range strings.SplitSeq(pool, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return "", false, fmt.Errorf("runPodCIDR: %w", err)
		}
		size := runBits4
		if p.Addr().Is6() {
			size = runBits6
		}
		if p.Bits() >= size {
			parts = append(parts, p.Masked().String())
			continue
		}
		if more = true; size-p.Bits() < 31 && i >= 1<<(size-p.Bits()) {
			return "", false, nil
		}
		parts = append(parts, nth(p.Masked(), size, uint64(i)).String())
	}
	return strings.Join(parts, ","), more, nil
}

// nth is the i-th subnet of a size.
func nth(p netip.Prefix, size int, i uint64) netip.Prefix {
	if p.Addr().Is4() {
		b := p.Addr().As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i)<<(32-size))
		return netip.PrefixFrom(netip.AddrFrom4(b), size)
	}
	b := p.Addr().As16()
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+i<<(64-size))
	return netip.PrefixFrom(netip.AddrFrom16(b), size)
}
