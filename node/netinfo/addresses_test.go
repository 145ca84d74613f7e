package netinfo_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monopod/node/netinfo"
)

type addr string

func (a addr) Network() string { return "ip" }
func (a addr) String() string  { return string(a) }

func TestPrimaryAddressesAreTheFirstUsableOfEachFamily(t *testing.T) {
	for _, c := range []struct {
		in   []net.Addr
		want []string
	}{
		{nil, nil},
		{[]net.Addr{addr("127.0.0.1/8"), addr("::1/128"), addr("fe80::1/64"), addr("169.254.3.4/16")}, nil},
		{[]net.Addr{addr("2001:db8::1/64"), addr("10.0.0.1/8"), addr("10.0.0.2/8"), addr("2001:db8::2/64")}, []string{"10.0.0.1", "2001:db8::1"}},
		{[]net.Addr{addr("nonsense"), addr("192.168.1.5/24")}, []string{"192.168.1.5"}},
	} {
		if diff := cmp.Diff(c.want, netinfo.Primary(c.in)); diff != "" {
			t.Errorf("%v: -want +got:\n%s", c.in, diff)
		}
	}
}

func TestAddressesOfThisMachineAreItsOwn(t *testing.T) {
	got, err := netinfo.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, a := range own {
		all = append(all, strings.Split(a.String(), "/")[0])
	}
	for _, a := range got {
		if !slices.Contains(all, a) || netip.MustParseAddr(a).IsLoopback() {
			t.Errorf("%s is not an address of this machine: %v", a, all)
		}
	}
}
