package link

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNamesAndHardwareAddressesFollowFromThePod(t *testing.T) {
	if name := HostName("a"); len(name) >= unix.IFNAMSIZ || name != HostName("a") || name == HostName("b") {
		t.Errorf("%q", name)
	}
	for addr, want := range map[string]string{"10.88.0.2/16": "0a:58:0a:58:00:02", "fd00::1:2/64": "0a:58:00:01:00:02"} {
		if got := (Pod{Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}}).mac().String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestMissingInterfacesAreDeleted(t *testing.T) {
	if err := DeleteIndex(1 << 30); err != nil {
		t.Error(err)
	}
	if err := Delete("no-such-device"); err != nil {
		t.Error(err)
	}
}
