package netinfo

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestListenersAreFoundWithTheirProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/net/tcp"); err != nil {
		t.Skip("this machine has no /proc")
	}
	local, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	everywhere, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer everywhere.Close()
	datagrams, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	me, _ := os.Executable()
	for _, c := range []struct {
		protocol string
		addr     net.Addr
		all      bool
	}{{"TCP", local.Addr(), false}, {"TCP", everywhere.Addr(), true}, {"UDP", datagrams.LocalAddr(), false}} {
		_, port, _ := net.SplitHostPort(c.addr.String())
		found, err := Listeners("/proc", 0, func(p int) bool { return port == strconv.Itoa(p) })
		if err != nil || len(found) == 0 {
			t.Fatalf("%s %s: %v, %v", c.protocol, c.addr, found, err)
		}
		i := 0
		for found[i].Protocol != c.protocol && i < len(found)-1 {
			i++
		}
		l := found[i]
		if l.Protocol != c.protocol || l.PID != os.Getpid() || !strings.HasPrefix(filepath.Base(me), l.Name) || l.Addr.Addr().IsUnspecified() != c.all || !c.all && l.Addr.String() != c.addr.String() {
			t.Errorf("%s: found %s in %q", c.addr, l, l.Cgroup)
		}
	}
	if found, err := Listeners("/proc", os.Getpid(), func(int) bool { return false }); err != nil || len(found) != 0 {
		t.Errorf("nobody asked for %v, %v", found, err)
	}
	if found, err := Listeners(t.TempDir(), 0, func(int) bool { return true }); err != nil || len(found) != 0 {
		t.Errorf("without /proc: %v, %v", found, err)
	}
}

func TestTheKernelsAddressesAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000:0050":                         "0.0.0.0:80",
		"00000000000000000000000000000000:0050": "[::]:80",
		"00000000000000000000000001000000:0016": "[::1]:22",
		"0000000000000000FFFF00000100007F:0016": "127.0.0.1:22",
		"B80D01200000000000000000010000FF:01BB": "[2001:db8::ff00:1]:443",
	} {
		if got, ok := parseSocket(text); !ok || got.String() != want {
			t.Errorf("%s is %s, %v; want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "x", "0100007F", "0100007F:x", "01:0050", "zz00007F:0050", "0100007F:12345"} {
		if got, ok := parseSocket(text); ok {
			t.Errorf("%q is %s", text, got)
		}
	}
}
