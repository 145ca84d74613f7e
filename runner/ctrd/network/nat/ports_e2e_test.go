//go:build e2e

package nat_test

import (
	"strings"
	"testing"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network"
)

func TestHostPortsWorkFromEverywhere(t *testing.T) {
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.2.0/24").Start(t)
	other, _ := b.Up(t, "other")
	before := b.Traces(t)
	p, _ := b.Up(t, "web",
		network.PortMapping{HostPort: 8080, ContainerPort: 80, Protocol: "TCP"},
		network.PortMapping{HostPort: 8053, ContainerPort: 80, Protocol: "UDP"},
		network.PortMapping{HostPort: 8081, ContainerPort: 80, Protocol: "TCP", HostIP: "127.0.0.1"},
		network.PortMapping{ContainerPort: 99})
	stop := netbed.Serve(t, p.NetNS, ":80")
	for _, from := range []struct{ netns, addr string }{
		{"", "127.0.0.1"},
		{"", netbed.UplinkAddr},
		{"", "10.199.2.1"},
		{other.NetNS, netbed.UplinkAddr},
		{other.NetNS, "10.199.2.1"},
		{p.NetNS, netbed.UplinkAddr}, // hairpin: to itself
		{out, netbed.UplinkAddr},
	} {
		netbed.WantAnswer(t, from.netns, "tcp", from.addr+":8080", "*")
		netbed.WantAnswer(t, from.netns, "udp", from.addr+":8053", "*")
	}
	netbed.WantAnswer(t, "", "tcp", "127.0.0.1:8081", "*")
	if _, err := netbed.Ask(t, "", "tcp", netbed.UplinkAddr+":8081"); err == nil {
		t.Error("a port for 127.0.0.1 is open on another address")
	}
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := netbed.Ask(t, "", "tcp", "127.0.0.1:8080"); err == nil {
		t.Error("the port is still open after Teardown")
	}
	stop()
	b.Unpin(t, p)
	b.Settles(t, before)
	p2, _ := b.Up(t, "web2", network.PortMapping{HostPort: 8080, ContainerPort: 80})
	if err := b.Teardown(t.Context(), p2); err != nil {
		t.Fatal(err)
	}
	b.Unpin(t, p2)
	b.Settles(t, before)
}

func TestHostPortsOfBothFamilies(t *testing.T) {
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.35.0/24,fd00:199:35::/64").Start(t)
	p, _ := b.Up(t, "web",
		network.PortMapping{HostPort: 8080, ContainerPort: 80},
		network.PortMapping{HostPort: 8081, ContainerPort: 80, HostIP: "::"},
		network.PortMapping{HostPort: 8082, ContainerPort: 80, HostIP: "2001:db8::2"},
		network.PortMapping{HostPort: 8083, ContainerPort: 80, HostIP: "0.0.0.0"})
	other, _ := b.Up(t, "other")
	netbed.Serve(t, p.NetNS, ":80")
	for _, from := range []string{"", out, p.NetNS, other.NetNS} {
		for _, addr := range []string{netbed.UplinkAddr + ":8080", "[2001:db8::2]:8080", "[2001:db8::2]:8081", "[2001:db8::2]:8082", netbed.UplinkAddr + ":8083"} {
			netbed.WantAnswer(t, from, "tcp", addr, "*")
		}
		for _, addr := range []string{netbed.UplinkAddr + ":8081", netbed.UplinkAddr + ":8082", "[2001:db8::2]:8083"} {
			if netbed.Quick(t, from, addr) == nil {
				t.Errorf("%s answers", addr)
			}
		}
	}
}

// TestTheNextSandboxOfAPodTakesItsPortOver: it comes before the former one is torn down.
func TestTheNextSandboxOfAPodTakesItsPortOver(t *testing.T) {
	b := netbed.New(t, "10.199.39.0/24").Start(t)
	port := network.PortMapping{HostPort: 8080, ContainerPort: 80}
	former, _ := b.Up(t, "z-former", port)
	next, ip := b.Up(t, "a-next", port)
	netbed.Serve(t, next.NetNS, ":80")
	netbed.WantAnswer(t, "", "tcp", "127.0.0.1:8080", "*")
	if err := b.Teardown(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	netbed.WantAnswer(t, "", "tcp", "127.0.0.1:8080", "*")
	if s := netbed.Tool(t, "nft", "list", "ruleset"); strings.Count(s, "tcp . 8080 : "+ip) != 1 {
		t.Errorf("the port is not the next one's alone:\n%s", s)
	}
}
