package names

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"monopod/internal/loopback"
)

func TestAClientIsAnsweredSoManyQueriesInASecond(t *testing.T) {
	c, a, b := newClients(), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	now := time.Now()
	admitted := func(who netip.Addr, queries int) (n int) {
		for range queries {
			if c.admits(who, now) {
				n++
			}
		}
		return n
	}
	if n := admitted(a, 10*burst); n != burst {
		t.Errorf("%d of a flood were admitted, want %d", n, burst)
	}
	if n := admitted(b, 100); n != 100 {
		t.Errorf("%d of the queries of another client were", n)
	}
	now = now.Add(time.Second)
	if n := admitted(a, 10*burst); n != perSecond {
		t.Errorf("%d were a second later, want %d", n, perSecond)
	}
	now = now.Add(-time.Hour)
	if n := admitted(a, 10); n != 0 {
		t.Errorf("%d were when the clock had gone back", n)
	}
}

func TestClientsAreForgottenWhenThereAreTooMany(t *testing.T) {
	c, now := newClients(), time.Now()
	first := netip.MustParseAddr("10.0.0.0")
	address := first
	for range 3 * maxClients { // as a pod can make up
		address = address.Next()
		c.admits(address, now)
	}
	if len(c.byAddr) > maxClients {
		t.Errorf("%d are known", len(c.byAddr))
	}
	if !c.admits(first.Next(), now) {
		t.Error("a client that was there before is not answered")
	}
	if c.admits(address.Next(), now) {
		t.Error("those that are made up share more than one client has")
	}
	if now = now.Add(time.Minute); !c.admits(address.Next(), now) {
		t.Error("a new one is not answered when those that are made up are quiet")
	}
}

// TestClientsAreNotLookedThroughForEachQuery: an agent was kept busy by a pod that asks from many addresses.
func TestClientsAreNotLookedThroughForEachQuery(t *testing.T) {
	c, now := newClients(), time.Now()
	address := netip.MustParseAddr("10.0.0.0")
	for range maxClients {
		address = address.Next()
		c.admits(address, now)
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{
		{forgetAfter / 2, maxClients},        // looked through: none is to be forgotten yet
		{forgetAfter, maxClients},            // all could be, and are not looked for so soon
		{forgetAfter/2 + forgetAfter, 1},     // now they are
		{forgetAfter/2 + forgetAfter + 1, 2}, // there is room
	} {
		address = address.Next()
		c.admits(address, now.Add(step.after))
		if n := len(c.byAddr); n != step.want {
			t.Errorf("after %s: %d are known, want %d", step.after, n, step.want)
		}
	}
}

// selective answers www.example.com only.
func selective(t *testing.T, addr string) uint16 {
	t.Helper()
	return resolver(t, addr, func(q query) []*reply {
		if q.name != "www.example.com" {
			return nil
		}
		return []*reply{example(q)}
	})
}

// A pod that asks for more unknown names than may wait gets an error for some at once. Other pods are answered meanwhile.
func TestAFloodOfOneClientStopsNoOther(t *testing.T) {
	we, other := loopback.Address(), loopback.Address()
	port, at := selective(t, other+":0"), netip.AddrPortFrom(netip.MustParseAddr(we), 10053)
	serving(t, at, resolvConf(t, "nameserver "+other+"\n"), port)
	dial := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(loopback.Address())}}
	flood, err := dial.DialContext(t.Context(), "udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flood.Close() }()
	const more = 10
	began := time.Now()
	for i := range maxWaiting + more {
		if _, err := flood.Write(question(t, fmt.Sprintf("n%d.example.com.", i), dnsmessage.TypeA)); err != nil {
			t.Fatal(err)
		}
	}
	if err := flood.SetDeadline(began.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 512)
	for range more {
		n, err := flood.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(b[:n]); err != nil || len(m.Questions) != 1 {
			t.Fatal(err)
		}
		var number int
		name := m.Questions[0].Name.String()
		if _, err := fmt.Sscanf(name, "n%d.example.com", &number); err != nil || number < maxWaiting || m.RCode != dnsmessage.RCodeServerFailure {
			t.Errorf("%s is answered with %s before those that came earlier", name, m.RCode)
		}
	}
	for name, want := range map[string]string{"one.default.svc.cluster.local.": "Success 10.0.0.1", "www.example.com.": "Success 192.0.2.80"} {
		if got := show(t, over(t, "udp", at.String(), question(t, name, dnsmessage.TypeA))); got != want {
			t.Errorf("%s is %q for another client, want %q", name, got, want)
		}
	}
}
