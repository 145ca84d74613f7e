package services

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/runner/service"
)

func port(protocol, addr string, number uint16, to ...string) service.Port {
	p := service.Port{Frontend: service.Frontend{Protocol: protocol, Addr: netip.MustParseAddr(addr), Port: number}}
	for _, t := range to {
		p.To = append(p.To, netip.MustParseAddrPort(t))
	}
	return p
}

func TestContentOfBothTables(t *testing.T) {
	sticky := port("tcp", "10.96.0.12", 80, "10.87.0.2:8080", "10.87.0.3:8080")
	sticky.Sticky = time.Minute
	table := service.Table{IPs: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd10:96::a")}, Ports: []service.Port{
		port("tcp", "0.0.0.0", 30080, "10.87.0.2:8080"), port("udp", "10.96.0.10", 53, "10.87.0.2:53", "10.87.0.3:53"), port("tcp", "10.96.0.11", 80), sticky,
		port("tcp", "fd10:96::a", 80, "[fd00::2]:8080"),
	}}
	table.Ports[2].From = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	four, six := newWant(table, false), newWant(table, true)
	if len(four.addrs.services) != 2 || len(four.addrs.endpoints) != 2 || len(four.node.endpoints) != 1 || len(four.addrs.refused) != 1 || len(four.node.services) != 1 || len(four.ips) != 1 {
		t.Errorf("%+v", four)
	}
	if got := slices.Sorted(maps.Keys(four.spreads)); !slices.Equal(got, []string{"node-spread-1", "spread-2"}) || len(four.sticky) != 1 {
		t.Errorf("%v, %v", got, four.sticky)
	}
	if len(six.addrs.services) != 1 || len(six.ips) != 1 || six.empty() || !newWant(service.Table{}, true).empty() {
		t.Errorf("%+v", six)
	}
	const key = "\x0a\x60\x00\x0a\x11\x00\x00\x00\x00\x35\x00\x00"
	if four.addrs.services[key] != "spread-2" || four.addrs.endpoints[1][key] != "\x0a\x57\x00\x03\x00\x35\x00\x00" {
		t.Errorf("%q", four.addrs.endpoints)
	}
	if !four.equal(newWant(table, false)) || four.equal(six) {
		t.Error("equal tables differ, or different ones are equal")
	}
	l := New(Config{Table: "x", Pods: []netip.Prefix{netip.MustParsePrefix("10.87.0.0/16")}}).layout(false, four)
	named := l.named()
	for _, chain := range []string{"spread-2", "endpoint-1", "node-spread-1", "node-endpoint-0", stickyChain(&sticky), endpointChain(&sticky, sticky.To[0]), "prerouting", "output", "refuse"} {
		if named[chain] == nil || len(l.rules[chain]) == 0 {
			t.Errorf("chain %s: %v", chain, l.rules[chain])
		}
	}
	for _, s := range l.sets {
		if got := len(l.contents(s)); (got == 0) != (s.Name == "node-refused") {
			t.Errorf("%s has %d elements", s.Name, got)
		}
	}
	if err := l.change(nil); err == nil {
		t.Error("it is not known what the kernel has")
	}
}

func TestFrontendsOfSomeClientsOnly(t *testing.T) {
	p := port("tcp", "192.0.2.7", 80, "10.87.0.2:8080")
	open := newWant(service.Table{Ports: []service.Port{p}}, false)
	p.From = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	some := newWant(service.Table{Ports: []service.Port{p}}, false)
	if open.equal(some) || len(some.limited) != 1 || len(some.from) != 1 {
		t.Errorf("%+v", some)
	}
	r := New(Config{Table: "x"})
	for _, c := range []struct {
		want  *want
		named bool
	}{{open, false}, {some, true}} {
		l := r.layout(false, c.want)
		if have := l.named()["clients"] != nil && l.named()["local-clients"] != nil && l.named()[fromChain(p.From)] != nil; have != c.named || (len(l.contents(l.limited)) == 1) != c.named {
			t.Errorf("%+v", l.named())
		}
	}
}

func TestAddressesOfNoService(t *testing.T) {
	four, six, pods := netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd10:96::/112"), netip.MustParsePrefix("10.87.0.0/16")
	some := service.Table{IPs: []netip.Addr{four.Addr().Next(), six.Addr().Next()}}
	none := newWant(some, false)
	some.Ranges = []netip.Prefix{four, six}
	ranges, alone := newWant(some, false), newWant(service.Table{Ranges: some.Ranges}, false)
	if ranges.equal(none) || none.equal(ranges) || !alone.empty() {
		t.Error("a range counts with Services only")
	}
	for name, tt := range map[string]struct {
		want    *want
		pods    []netip.Prefix
		v6      bool
		forward int
	}{
		"no ranges":                {none, []netip.Prefix{pods}, false, 0},
		"no Services":              {alone, []netip.Prefix{pods}, false, 0},
		"pods":                     {ranges, []netip.Prefix{pods}, false, 1},
		"pods anywhere":            {ranges, nil, false, 0},
		"pods of the other family": {newWant(some, true), []netip.Prefix{pods}, true, 0},
	} {
		l := New(Config{Table: "x", Pods: tt.pods}).layout(tt.v6, tt.want)
		if f, h := len(l.rules["forward"]), len(l.rules["local"]); f != 1+tt.forward || h != 1 || (l.named()["unallocated"] != nil) != (tt.forward > 0) || len(l.rules["input"]) != 1 {
			t.Errorf("%s: %d rules for forwarded packets, %d for those of the machine", name, f, h)
		}
	}
	a, b := New(Config{Pods: []netip.Prefix{pods}}).layout(false, ranges), New(Config{Pods: []netip.Prefix{four}}).layout(false, ranges)
	if sameRules(a.rules["forward"], b.rules["forward"]) {
		t.Error("rules for different pods are the same")
	}
}

func TestDifferencesOfElements(t *testing.T) {
	gone, added := differences(map[string]string{"a": "1", "b": "2", "c": "3"}, map[string]string{"b": "2", "c": "4", "d": "5"})
	if !maps.Equal(gone, map[string]string{"a": "1", "c": "3"}) || !maps.Equal(added, map[string]string{"c": "4", "d": "5"}) {
		t.Errorf("%v, %v", gone, added)
	}
}

func TestValuesThatTheKernelReturns(t *testing.T) {
	verdicts := &nftables.Set{DataType: nftables.TypeVerdict}
	for name, tt := range map[string]struct {
		set  *nftables.Set
		val  string
		want string
	}{
		"a chain":      {verdicts, "\x08\x00\x01\x00\xff\xff\xff\xfc\x0d\x00\x02\x00spread-2\x00\x00\x00\x00", "spread-2"},
		"no chain":     {verdicts, "\x08\x00\x01\x00\xff\xff\xff\xfc", ""},
		"an endpoint":  {&nftables.Set{}, "\x0a\x57\x00\x03\x00\x35", "\x0a\x57\x00\x03\x00\x35\x00\x00"},
		"whole words":  {&nftables.Set{}, "\x0a\x57\x00\x03", "\x0a\x57\x00\x03"},
		"without data": {&nftables.Set{}, "", ""},
	} {
		if got := valueOf(tt.set, nftables.SetElement{Val: []byte(tt.val)}); got != tt.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWhichFlowsAreDropped(t *testing.T) {
	ports := func(all ...service.Port) map[service.Frontend][]netip.AddrPort {
		return udp(newWant(service.Table{Ports: all}, false))
	}
	s := stale{
		before: ports(port("udp", "10.96.0.12", 53, "10.87.0.2:53")),
		after:  ports(port("udp", "10.96.0.10", 53, "10.87.0.2:53"), port("udp", "0.0.0.0", 30053, "10.87.0.2:53"), port("tcp", "10.96.0.11", 53, "10.87.0.2:53")),
	}
	for name, tt := range map[string]struct {
		protocol  uint8
		to        string
		port      uint16
		from      string
		fromPort  uint16
		isDropped bool
	}{
		"to an endpoint":            {unix.IPPROTO_UDP, "10.96.0.10", 53, "10.87.0.2", 53, false},
		"to one that is gone":       {unix.IPPROTO_UDP, "10.96.0.10", 53, "10.87.0.3", 53, true},
		"to another port":           {unix.IPPROTO_UDP, "10.96.0.10", 53, "10.87.0.2", 54, true},
		"not translated":            {unix.IPPROTO_UDP, "10.96.0.10", 53, "10.96.0.10", 53, true},
		"to a port of this machine": {unix.IPPROTO_UDP, "192.0.2.7", 30053, "10.87.0.2", 53, false},
		"to such a port before":     {unix.IPPROTO_UDP, "192.0.2.7", 30053, "192.0.2.7", 30053, true},
		"to a Service that is gone": {unix.IPPROTO_UDP, "10.96.0.12", 53, "10.87.0.2", 53, true},
		"to others":                 {unix.IPPROTO_UDP, "192.0.2.9", 53, "192.0.2.9", 53, false},
		"TCP":                       {unix.IPPROTO_TCP, "10.96.0.10", 53, "10.87.0.3", 53, false},
	} {
		flow := &netlink.ConntrackFlow{
			Forward: netlink.IPTuple{Protocol: tt.protocol, DstIP: net.ParseIP(tt.to), DstPort: tt.port},
			Reverse: netlink.IPTuple{SrcIP: net.ParseIP(tt.from), SrcPort: tt.fromPort},
		}
		if got := s.MatchConntrackFlow(flow); got != tt.isDropped {
			t.Errorf("%s: dropped: %t", name, got)
		}
	}
	if s.MatchConntrackFlow(&netlink.ConntrackFlow{Forward: netlink.IPTuple{Protocol: unix.IPPROTO_UDP}}) {
		t.Error("a flow without addresses is dropped")
	}
	if len(udp(nil)) > 0 {
		t.Error("nothing has ports")
	}
}

func TestTablesOfInstancesHaveDifferentNames(t *testing.T) {
	if a, b := TableName("/var/lib/monopod/cni"), TableName("/var/lib/other/cni"); a == b || !strings.HasPrefix(a, TablePrefix) {
		t.Errorf("%s, %s", a, b)
	}
}
