package testbed

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

func address(t *testing.T, cidr string) net.Addr {
	t.Helper()
	ip, subnet, err := net.ParseCIDR(cidr)
	if err != nil {
		t.Fatal(err)
	}
	return &net.IPNet{IP: ip, Mask: subnet.Mask}
}

func TestSubnetsThatAreInUseAreLeftOut(t *testing.T) {
	s := &Subnets{}
	used := []net.Addr{address(t, "127.0.0.1/8"), address(t, "10.9.2.1/24"), address(t, "10.9.4.1/23"), address(t, "fd00::1/64")}
	for _, want := range []string{"10.9.1.0/24", "10.9.3.0/24", "10.9.6.0/24"} {
		if got, err := s.next("10.9", used); err != nil || got.String() != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if got, err := s.next("127.0", used); err == nil {
		t.Errorf("%s is handed out although it is in use", got)
	}
}

func TestSubnetsBeginAnewAfterTheLastOne(t *testing.T) {
	s := &Subnets{}
	seen := map[netip.Prefix]bool{}
	for range 255 {
		got, err := s.next("10.9", nil)
		if err != nil || seen[got] {
			t.Fatalf("%s, %v", got, err)
		}
		seen[got] = true
	}
	if got, err := s.next("10.9", nil); err != nil || got.String() != "10.9.1.0/24" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestPortsThatAreInUseAreLeftOut(t *testing.T) {
	first := (&Ports{}).Take(t)
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", first))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &Ports{}
	seen := map[int32]bool{first: true}
	for range 20 {
		got := p.Take(t)
		if seen[got] || got < 20000 || got >= 32000 {
			t.Errorf("port %d", got)
		}
		seen[got] = true
	}
}
