//go:build e2e

package services_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network/services"
	"monopod/runner/service"
)

const (
	cluster = "10.96.0.10"
	other   = "10.96.0.11"
)

func port(protocol, addr string, number uint16, to ...string) service.Port {
	p := service.Port{Frontend: service.Frontend{Protocol: protocol, Addr: netip.MustParseAddr(addr), Port: number}}
	for _, t := range to {
		p.To = append(p.To, netip.MustParseAddrPort(t))
	}
	return p
}

func table(ports ...service.Port) service.Table {
	t := service.Table{Ports: ports}
	for _, p := range ports {
		if strings.HasPrefix(p.Addr.String(), "10.96.") || strings.HasPrefix(p.Addr.String(), "fd96:") {
			t.IPs = append(t.IPs, p.Addr)
		}
	}
	return t
}

// start returns rules for a network, which are removed when the test ends.
func start(tb testing.TB, cidrs ...string) *services.Rules {
	tb.Helper()
	cfg := services.Config{Table: services.TableName(tb.Name()), Log: slog.New(slog.NewTextHandler(tb.Output(), nil))}
	for _, c := range cidrs {
		cfg.Pods = append(cfg.Pods, netip.MustParsePrefix(c))
	}
	r := services.New(cfg)
	if err := r.Supported(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Remove(); err != nil {
			tb.Error(err)
		}
		if s := netbed.Tool(tb, "nft", "list", "tables"); strings.Contains(s, services.TablePrefix) {
			tb.Errorf("left behind: %s", s)
		}
	})
	return r
}

func apply(tb testing.TB, r *services.Rules, t service.Table) {
	tb.Helper()
	if err := r.Apply(tb.Context(), t); err != nil {
		tb.Fatal(err)
	}
}

// named answers every connection and packet with a name.
func named(tb testing.TB, netns, addr, name string) {
	tb.Helper()
	var l net.Listener
	var u net.PacketConn
	err := netbed.InNet(tb, netns, func() (err error) {
		if l, err = net.Listen("tcp", addr); err != nil {
			return err
		}
		u, err = net.ListenPacket("udp", addr)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = errors.Join(l.Close(), u.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			c.Close()
		}
	}()
	go func() {
		b := make([]byte, 10)
		for {
			_, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte(name), from)
		}
	}()
}

// answers returns the different answers of many connections, sorted.
func answers(tb testing.TB, netns, network, addr string, times int) []string {
	tb.Helper()
	var all []string
	for range times {
		got, err := netbed.Ask(tb, netns, network, addr)
		if err != nil {
			tb.Errorf("%s to %s %s: %v", netns, network, addr, err)
			continue
		}
		all = append(all, got)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestServicesWorkFromEverywhere(t *testing.T) {
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.61.0/24").Start(t)
	client, _ := b.Up(t, "client")
	one, oneIP := b.Up(t, "one")
	two, twoIP := b.Up(t, "two")
	named(t, one.NetNS, ":8080", "one")
	named(t, two.NetNS, ":9090", "two")
	to := []string{oneIP + ":8080", twoIP + ":9090"}
	r := start(t, "10.199.61.0/24")
	apply(t, r, table(
		port("tcp", cluster, 80, to...), port("udp", cluster, 53, to...), port("tcp", "0.0.0.0", 30080, to...), port("udp", "0.0.0.0", 30053, to...),
		port("tcp", netbed.UplinkAddr, 81, to...), port("tcp", other, 80, oneIP+":8080")))
	both := []string{"one", "two"}
	for _, from := range []string{"", client.NetNS, one.NetNS, two.NetNS} {
		for _, at := range []struct{ network, addr string }{{"tcp", cluster + ":80"}, {"udp", cluster + ":53"}} {
			if got := answers(t, from, at.network, at.addr, 20); !slices.Equal(got, both) {
				t.Errorf("%s to %v: %v", from, at, got)
			}
		}
		if got := answers(t, from, "tcp", other+":80", 3); !slices.Equal(got, []string{"one"}) {
			t.Errorf("%s: %v", from, got)
		}
	}
	for _, from := range []string{"", client.NetNS, one.NetNS, out} {
		for _, at := range []struct{ network, addr string }{{"tcp", netbed.UplinkAddr + ":30080"}, {"udp", netbed.UplinkAddr + ":30053"}, {"tcp", netbed.UplinkAddr + ":81"}} {
			if got := answers(t, from, at.network, at.addr, 20); !slices.Equal(got, both) {
				t.Errorf("%s to %v: %v", from, at, got)
			}
		}
	}
	if got := answers(t, "", "tcp", "127.0.0.1:30080", 20); !slices.Equal(got, both) {
		t.Errorf("127.0.0.1: %v", got)
	}
}

// TestClientsOutsideOfTheSourceRangesAreDropped: before the translation, so that no rule accepts them later. It is about pods, too.
func TestClientsOutsideOfTheSourceRangesAreDropped(t *testing.T) {
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.71.0/24").Start(t)
	client, clientIP := b.Up(t, "client")
	web, ip := b.Up(t, "web")
	named(t, web.NetNS, ":8080", "web")
	r := start(t, "10.199.71.0/24")
	of := func(from ...string) service.Table {
		tcp, udp := port("tcp", netbed.UplinkAddr, 81, ip+":8080"), port("udp", netbed.UplinkAddr, 81, ip+":8080")
		for _, f := range from {
			tcp.From, udp.From = append(tcp.From, netip.MustParsePrefix(f)), append(udp.From, netip.MustParsePrefix(f))
		}
		return table(tcp, udp, port("tcp", netbed.UplinkAddr, 82, ip+":8080"), port("tcp", netbed.UplinkAddr, 83), port("tcp", cluster, 80, ip+":8080"))
	}
	for _, c := range []struct {
		from    []string
		allowed []string
	}{
		{nil, []string{out, client.NetNS, ""}},
		{[]string{"203.0.113.0/24"}, nil},
		{[]string{netbed.OutsideAddr + "/32"}, []string{out}},
		{[]string{"203.0.113.0/24", clientIP + "/32"}, []string{client.NetNS}},
		{[]string{netbed.UplinkAddr + "/32"}, []string{""}},
		{nil, []string{out, client.NetNS, ""}},
	} {
		apply(t, r, of(c.from...))
		if s := netbed.Tool(t, "nft", "list", "table", "ip", services.TableName(t.Name())); strings.Contains(s, "invalid") {
			t.Error(s)
		}
		for _, from := range []string{out, client.NetNS, ""} {
			for _, network := range []string{"tcp", "udp"} {
				got, err := netbed.Ask(t, from, network, netbed.UplinkAddr+":81")
				if allowed := slices.Contains(c.allowed, from); allowed != (got == "web") || errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("clients in %v: %q by %s: %q, %v", c.from, from, network, got, err)
				}
			}
			netbed.WantAnswer(t, from, "tcp", netbed.UplinkAddr+":82", "web")
		}
		netbed.WantAnswer(t, client.NetNS, "tcp", cluster+":80", "web")
		if damaged, err := r.Repair(t.Context()); damaged || err != nil {
			t.Errorf("clients in %v: %t, %v", c.from, damaged, err)
		}
	}
}

// TestAClientOutsideKeepsItsAddress: pods see who connects to a node port.
func TestAClientOutsideKeepsItsAddress(t *testing.T) {
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.62.0/24").Start(t)
	p, ip := b.Up(t, "web")
	netbed.Serve(t, p.NetNS, ":80")
	r := start(t, "10.199.62.0/24")
	apply(t, r, table(port("tcp", "0.0.0.0", 30080, ip+":80")))
	netbed.WantAnswer(t, out, "tcp", netbed.UplinkAddr+":30080", netbed.OutsideAddr)
}

func TestConnectionsWithoutEndpointAreRefusedAtOnce(t *testing.T) {
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.63.0/24").Start(t)
	client, _ := b.Up(t, "client")
	web, ip := b.Up(t, "web")
	named(t, web.NetNS, ":80", "web")
	r := start(t, "10.199.63.0/24")
	apply(t, r, table(port("tcp", cluster, 80), port("udp", cluster, 53), port("tcp", "0.0.0.0", 30080), port("tcp", other, 80, ip+":80")))
	for _, at := range []struct{ from, network, addr string }{
		{"", "tcp", cluster + ":80"},
		{client.NetNS, "tcp", cluster + ":80"},
		{client.NetNS, "tcp", cluster + ":81"}, // a port that it does not have
		{client.NetNS, "tcp", other + ":81"},
		{client.NetNS, "udp", cluster + ":53"},
		{"", "udp", cluster + ":53"},
		{"", "tcp", netbed.UplinkAddr + ":30080"},
		{client.NetNS, "tcp", netbed.UplinkAddr + ":30080"},
		{out, "tcp", netbed.UplinkAddr + ":30080"},
	} {
		began := time.Now()
		_, err := netbed.Ask(t, at.from, at.network, at.addr)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) > 500*time.Millisecond {
			t.Errorf("%v: %v after %v", at, err, time.Since(began))
		}
	}
	apply(t, r, table(port("tcp", cluster, 80, ip+":80"), port("tcp", other, 80)))
	netbed.WantAnswer(t, client.NetNS, "tcp", cluster+":80", "web")
	if _, err := netbed.Ask(t, client.NetNS, "tcp", other+":80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("its endpoint is gone: %v", err)
	}
}

// TestAddressesOfNoServiceAreRefused: pods and the machine do not wait for an answer of the default route. All others pass: addresses outside of the
// ranges, those of the machine, connections that are translated, also by others, and clients that cluster IPs are not for.
func TestAddressesOfNoServiceAreRefused(t *testing.T) {
	out := netbed.Outside(t)
	const cidr, six = "10.199.73.0/24", "fd00:199:73::/64"
	b := netbed.New(t, cidr+","+six).Start(t)
	client, _ := b.Up(t, "client")
	web, ip := b.Up(t, "web")
	named(t, web.NetNS, ":8080", "web")
	r := start(t, cidr, six)
	want := table(port("tcp", cluster, 80, ip+":8080"), port("udp", cluster, 53, ip+":8080"))
	want.Ranges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}
	refused := func(from, network, addr string, isRefused bool) {
		t.Helper()
		began := time.Now()
		_, err := netbed.Ask(t, from, network, addr)
		if got := errors.Is(err, syscall.ECONNREFUSED) && time.Since(began) < 500*time.Millisecond; got != isRefused || err == nil {
			t.Errorf("%q to %s %s: %v after %v", from, network, addr, err, time.Since(began))
		}
	}
	refused(client.NetNS, "tcp", "10.96.0.99:80", false)
	refused("", "tcp", "10.96.0.99:80", false)
	for _, w := range []service.Table{want, {Ranges: want.Ranges}, want} {
		apply(t, r, w)
		services := len(w.IPs) > 0
		for _, at := range []string{"10.96.0.99", "10.96.255.255", "[fd96::99]"} {
			refused(client.NetNS, "tcp", at+":80", services)
			refused(client.NetNS, "udp", at+":53", services)
		}
		refused(client.NetNS, "tcp", "10.97.0.99:80", false)
		refused("", "tcp", "10.96.0.99:80", false) // it may be one of a network behind the default route
		if damaged, err := r.Repair(t.Context()); damaged || err != nil {
			t.Errorf("%t, %v", damaged, err)
		}
	}
	if s := netbed.Tool(t, "nft", "list", "table", "ip", services.TableName(t.Name())); strings.Contains(s, "invalid") {
		t.Error(s)
	}
	for _, from := range []string{client.NetNS, ""} {
		netbed.WantAnswer(t, from, "tcp", cluster+":80", "web")
		netbed.WantAnswer(t, from, "udp", cluster+":53", "web")
	}
	netbed.Tool(t, "nsenter", "--net="+out, "ip", "route", "add", "10.96.0.0/16", "via", netbed.UplinkAddr)
	refused(out, "tcp", "10.96.0.99:80", false)
	// Another instance has the same range, and its pods their own Services.
	o := netbed.New(t, "10.199.74.0/24").Start(t)
	theirs, theirIP := o.Up(t, "theirs")
	named(t, theirs.NetNS, ":8080", "theirs")
	second := services.New(services.Config{Table: services.TableName(t.Name() + "-2"), Pods: []netip.Prefix{netip.MustParsePrefix("10.199.74.0/24")}, Log: slog.New(slog.DiscardHandler)})
	defer func() { _ = second.Remove() }()
	also := table(port("tcp", other, 80, theirIP+":8080"))
	also.Ranges = want.Ranges
	apply(t, second, also)
	netbed.WantAnswer(t, theirs.NetNS, "tcp", other+":80", "theirs")
	netbed.WantAnswer(t, "", "tcp", other+":80", "theirs")
	netbed.WantAnswer(t, "", "tcp", cluster+":80", "web")
	// An address of the machine in the range stays.
	netbed.Tool(t, "ip", "address", "add", "10.96.0.77/32", "dev", "lo")
	defer netbed.Tool(t, "ip", "address", "del", "10.96.0.77/32", "dev", "lo")
	named(t, "", "10.96.0.77:8081", "machine")
	for _, from := range []string{client.NetNS, ""} {
		netbed.WantAnswer(t, from, "tcp", "10.96.0.77:8081", "machine")
	}
	// Without a range, it is as before.
	want.Ranges = nil
	apply(t, second, want)
	apply(t, r, want)
	refused(client.NetNS, "tcp", "10.96.0.99:80", false)
}

func TestAClientStaysWithItsEndpoint(t *testing.T) {
	b := netbed.New(t, "10.199.64.0/24").Start(t)
	var to []string
	for i := range 4 {
		p, ip := b.Up(t, fmt.Sprint("web", i))
		named(t, p.NetNS, ":8080", ip)
		to = append(to, ip+":8080")
	}
	slices.Sort(to)
	sticky := func(seconds int, to ...string) service.Table {
		c, n := port("tcp", cluster, 80, to...), port("tcp", "0.0.0.0", 30080, to...)
		c.Sticky, n.Sticky = time.Duration(seconds)*time.Second, time.Duration(seconds)*time.Second
		return table(c, n, port("tcp", other, 80, to...))
	}
	r := start(t, "10.199.64.0/24")
	apply(t, r, sticky(60, to...))
	// nft crashes with expressions that it does not know.
	if s := netbed.Tool(t, "nft", "list", "table", "ip", services.TableName(t.Name())); strings.Contains(s, "invalid") {
		t.Error(s)
	}
	var seen []string
	for i := range 8 {
		client, _ := b.Up(t, fmt.Sprint("client", i))
		got := answers(t, client.NetNS, "tcp", cluster+":80", 10)
		if len(got) != 1 {
			t.Errorf("a client came to %v", got)
		}
		if node := answers(t, client.NetNS, "tcp", "10.199.64.1:30080", 10); len(node) != 1 {
			t.Errorf("by the node port, a client came to %v", node)
		}
		if free := answers(t, client.NetNS, "tcp", other+":80", 20); len(free) < 2 {
			t.Errorf("without affinity, a client came to %v", free)
		}
		seen = append(seen, got...)
		if i > 0 {
			continue
		}
		// Its endpoint goes: the client has another one, and stays with that when the first is back.
		left := slices.DeleteFunc(slices.Clone(to), func(s string) bool { return s == got[0]+":8080" })
		apply(t, r, sticky(60, left...))
		moved := answers(t, client.NetNS, "tcp", cluster+":80", 10)
		if len(moved) != 1 || moved[0] == got[0] {
			t.Errorf("the client came to %v, and %v is gone", moved, got)
		}
		apply(t, r, sticky(60, to...))
		if back := answers(t, client.NetNS, "tcp", cluster+":80", 10); !slices.Equal(back, moved) {
			t.Errorf("the client came to %v and then to %v", moved, back)
		}
		netbed.Tool(t, "nft", "delete", "table", "ip", services.TableName(t.Name()))
		if damaged, err := r.Repair(t.Context()); !damaged || err != nil {
			t.Errorf("%t, %v", damaged, err)
		}
	}
	slices.Sort(seen)
	if seen = slices.Compact(seen); len(seen) < 2 {
		t.Errorf("all clients came to %v", seen)
	}
	apply(t, r, sticky(1, to...))
	client, _ := b.Up(t, "short")
	for end := time.Now().Add(20 * time.Second); len(seen) < 3 || time.Now().After(end); {
		got := answers(t, client.NetNS, "tcp", cluster+":80", 2)
		if seen = append(seen, got...); time.Now().After(end) {
			t.Fatalf("after its time, a client still came to %v", seen)
		}
		slices.Sort(seen)
		seen = slices.Compact(seen)
		time.Sleep(1100 * time.Millisecond)
	}
}

func TestAFirewallReloadIsRepaired(t *testing.T) {
	netbed.Outside(t)
	b := netbed.New(t, "10.199.65.0/24").Start(t)
	p, ip := b.Up(t, "web")
	named(t, p.NetNS, ":80", "web")
	r := start(t, "10.199.65.0/24")
	want := table(port("tcp", cluster, 80, ip+":80"), port("tcp", other, 80))
	apply(t, r, want)
	if damaged, err := r.Repair(t.Context()); damaged || err != nil {
		t.Errorf("undamaged: %t, %v", damaged, err)
	}
	name := services.TableName(t.Name())
	for _, damage := range []string{
		"delete table ip " + name, "flush chain ip " + name + " find", "flush map ip " + name + " endpoints-0", "flush set ip " + name + " refused",
		"add element ip " + name + " ips { 10.96.0.99 }",
	} {
		netbed.Tool(t, "nft", strings.Fields(damage)...)
		if damaged, err := r.Repair(t.Context()); !damaged || err != nil {
			t.Errorf("%s: %t, %v", damage, damaged, err)
		}
		netbed.WantAnswer(t, "", "tcp", cluster+":80", "web")
	}
	// Another process starts with the same content, and with another one.
	again := services.New(services.Config{Table: name, Pods: []netip.Prefix{netip.MustParsePrefix("10.199.65.0/24")}, Log: slog.New(slog.DiscardHandler)})
	apply(t, again, want)
	netbed.WantAnswer(t, "", "tcp", cluster+":80", "web")
	apply(t, services.New(services.Config{Table: name, Log: slog.New(slog.DiscardHandler)}), table(port("tcp", other, 80, ip+":80")))
	netbed.WantAnswer(t, "", "tcp", other+":80", "web")
	apply(t, again, service.Table{})
}

func TestAUDPFlowFollowsItsService(t *testing.T) {
	netbed.Outside(t)
	b := netbed.New(t, "10.199.66.0/24").Start(t)
	one, oneIP := b.Up(t, "one")
	two, twoIP := b.Up(t, "two")
	named(t, one.NetNS, ":53", "one")
	named(t, two.NetNS, ":53", "two")
	r := start(t, "10.199.66.0/24")
	for _, at := range []service.Frontend{port("udp", cluster, 53).Frontend, port("udp", "0.0.0.0", 30053).Frontend} {
		addr := at.Addr.String()
		if at.Addr.IsUnspecified() {
			addr = "10.199.66.1"
		}
		c, err := net.Dial("udp", net.JoinHostPort(addr, fmt.Sprint(at.Port)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ask := func() string {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write([]byte("?")) // the first write after a refusal reports that
			_, _ = c.Write([]byte("?"))
			buf := make([]byte, 100)
			n, _ := c.Read(buf)
			for len(buf) > 0 { // what is left of the other question
				_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
				if _, err := c.Read(make([]byte, 100)); err != nil {
					break
				}
			}
			return string(buf[:n])
		}
		if got := ask(); got != "" {
			t.Errorf("before there is a Service, %q answers", got)
		}
		for _, end := range []struct{ to, want string }{{oneIP, "one"}, {twoIP, "two"}, {oneIP, "one"}} {
			apply(t, r, service.Table{Ports: []service.Port{{Frontend: at, To: []netip.AddrPort{netip.MustParseAddrPort(end.to + ":53")}}}})
			if got := ask(); got != end.want {
				t.Errorf("%v leads to %s, and %q answers", at, end.want, got)
			}
		}
	}
}

// TestAUDPFlowThatBeganWhileTheRulesWereDamaged reaches its Service after the repair, though its entry is without translation.
func TestAUDPFlowThatBeganWhileTheRulesWereDamaged(t *testing.T) {
	netbed.Outside(t)
	b := netbed.New(t, "10.199.72.0/24").Start(t)
	web, ip := b.Up(t, "web")
	named(t, web.NetNS, ":53", "web")
	r := start(t, "10.199.72.0/24")
	apply(t, r, service.Table{Ports: []service.Port{port("udp", "0.0.0.0", 30053, ip+":53")}})
	// Where others translate too, an entry is final with its first packet.
	netbed.Tool(t, "nft", "add table ip other; add chain ip other output { type nat hook output priority -100; }; add rule ip other output counter")
	defer netbed.Tool(t, "nft", "delete table ip other")
	netbed.Tool(t, "nft", "delete", "table", "ip", services.TableName(t.Name()))
	c, err := net.Dial("udp", "10.199.72.1:30053")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("?"))
	if damaged, err := r.Repair(t.Context()); !damaged || err != nil {
		t.Fatalf("%t, %v", damaged, err)
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = c.Write([]byte("?")) // the first write after a refusal reports that
	_, _ = c.Write([]byte("?"))
	buf := make([]byte, 10)
	n, err := c.Read(buf)
	if errors.Is(err, syscall.ECONNREFUSED) {
		n, err = c.Read(buf)
	}
	if string(buf[:n]) != "web" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestServicesOfBothFamilies(t *testing.T) {
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.67.0/24,fd00:199:67::/64").Start(t)
	p := b.Pod(t, "web")
	ips, err := b.Setup(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Teardown(t.Context(), p) })
	client, _ := b.Up(t, "client")
	named(t, p.NetNS, ":8080", "web")
	r := start(t, "10.199.67.0/24", "fd00:199:67::/64")
	sticky := port("tcp", "fd96::11", 80, "["+ips[1]+"]:8080")
	sticky.Sticky = time.Minute
	apply(t, r, table(port("tcp", cluster, 80, ips[0]+":8080"), port("tcp", "fd96::10", 80, "["+ips[1]+"]:8080"), port("udp", "fd96::10", 53, "["+ips[1]+"]:8080"), sticky,
		port("tcp", "fd96::12", 80), port("tcp", "::", 30080, "["+ips[1]+"]:8080")))
	for _, from := range []string{"", client.NetNS, p.NetNS} {
		for _, at := range []string{cluster + ":80", "[fd96::10]:80", "[fd96::11]:80", "[2001:db8::2]:30080"} {
			netbed.WantAnswer(t, from, "tcp", at, "web")
		}
		netbed.WantAnswer(t, from, "udp", "[fd96::10]:53", "web")
		if _, err := netbed.Ask(t, from, "tcp", "[fd96::12]:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", from, err)
		}
	}
	netbed.WantAnswer(t, out, "tcp", "[2001:db8::2]:30080", "web")
	if ok, err := r.Repair(t.Context()); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

// TestTwoInstancesMayHaveTheSameAddresses: each serves its own pods.
func TestTwoInstancesMayHaveTheSameAddresses(t *testing.T) {
	netbed.Outside(t)
	for i, name := range []string{"one", "two"} {
		cidr := fmt.Sprintf("10.199.%d.0/24", 68+i)
		b := netbed.New(t, cidr).Start(t)
		p, ip := b.Up(t, name+"-web")
		named(t, p.NetNS, ":8080", name)
		client, _ := b.Up(t, name+"-client")
		r := services.New(services.Config{Table: services.TableName(name), Pods: []netip.Prefix{netip.MustParsePrefix(cidr)}, Log: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = r.Remove() })
		apply(t, r, table(port("tcp", cluster, 80, ip+":8080")))
		defer netbed.WantAnswer(t, client.NetNS, "tcp", cluster+":80", name)
	}
}

func TestAThousandServices(t *testing.T) {
	netbed.Outside(t)
	b := netbed.New(t, "10.199.70.0/24").Start(t)
	p, ip := b.Up(t, "web")
	named(t, p.NetNS, ":8080", "web")
	r := start(t, "10.199.70.0/24")
	var ports []service.Port
	for i := range 1000 {
		at := fmt.Sprintf("10.96.%d.%d", 1+i/250, 1+i%250)
		ports = append(ports, port("tcp", at, 80, ip+":8080", "10.199.70.250:8080", "10.199.70.251:8080"), port("tcp", "0.0.0.0", uint16(30000+i), ip+":8080"))
	}
	ports[1998].To = ports[1998].To[:1]
	began := time.Now()
	apply(t, r, table(ports...))
	first := time.Since(began)
	netbed.WantAnswer(t, "", "tcp", "10.96.4.250:80", "web")
	began = time.Now()
	ports[0].To = ports[0].To[:1]
	apply(t, r, table(ports...))
	t.Logf("all: %v, one change: %v", first, time.Since(began))
	netbed.WantAnswer(t, "", "tcp", "10.96.1.1:80", "web")
	began = time.Now()
	if damaged, err := r.Repair(t.Context()); damaged || err != nil {
		t.Errorf("%t, %v", damaged, err)
	}
	t.Logf("check: %v", time.Since(began))
	netbed.Tool(t, "nft", "flush", "ruleset")
	if damaged, err := r.Repair(t.Context()); !damaged || err != nil {
		t.Errorf("%t, %v", damaged, err)
	}
}
