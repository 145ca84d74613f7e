package link

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
)

func TestPrefixesOfTheKernel(t *testing.T) {
	for name, tt := range map[string]struct {
		in   *net.IPNet
		want string // "": none
	}{
		"IPv4":                        {&net.IPNet{IP: net.IP{10, 0, 0, 1}, Mask: net.CIDRMask(24, 32)}, "10.0.0.1/24"},
		"IPv4 in 16 bytes":            {&net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(24, 32)}, "10.0.0.1/24"},
		"IPv6":                        {&net.IPNet{IP: net.ParseIP("fd00::1"), Mask: net.CIDRMask(64, 128)}, "fd00::1/64"},
		"a default route":             {&net.IPNet{IP: net.IP{0, 0, 0, 0}, Mask: net.CIDRMask(0, 32)}, "0.0.0.0/0"},
		"a default route without one": {nil, ""},
		"an address that is none":     {&net.IPNet{IP: net.IP{1, 2}, Mask: net.CIDRMask(24, 32)}, ""},
		"a mask that is no mask":      {&net.IPNet{IP: net.IP{10, 0, 0, 1}, Mask: net.IPMask{255, 0, 255, 0}}, ""},
		"everything of IPv4":          {everything(netip.MustParseAddr("10.0.0.1")), "0.0.0.0/0"},
		"everything of IPv6":          {everything(netip.MustParseAddr("fd00::1")), "::/0"},
	} {
		got, ok := Prefix(tt.in)
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("%s: %s, %t", name, got, ok)
		}
	}
}

func TestAnInterruptedDumpIsRepeated(t *testing.T) {
	failure := errors.New("operation not permitted")
	for name, tt := range map[string]struct {
		interrupted int
		err         error
		calls       int
	}{
		"at once":                  {0, nil, 1},
		"after three":              {3, nil, 4},
		"another error ends it":    {1, failure, 2},
		"a kernel that never ends": {1000, netlink.ErrDumpInterrupted, 10},
	} {
		calls := 0
		got, err := Retry(func() ([]int, error) {
			if calls++; calls <= tt.interrupted {
				return []int{0}, netlink.ErrDumpInterrupted
			}
			return []int{7}, tt.err
		})
		if !errors.Is(err, tt.err) || calls != tt.calls || err == nil && (len(got) != 1 || got[0] != 7) {
			t.Errorf("%s: %v, %v after %d calls", name, got, err, calls)
		}
	}
}

func TestTheKernelIsAwaitedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls, began := 0, time.Now()
		if err := await("it is not up", func() (bool, error) { polls++; return polls == 5, nil }); err != nil || time.Since(began) > time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		failure := errors.New("no such device")
		if err := await("it is not up", func() (bool, error) { return false, failure }); !errors.Is(err, failure) {
			t.Errorf("an error: %v", err)
		}
		began = time.Now()
		if err := await("it is not up", func() (bool, error) { return false, nil }); err == nil || err.Error() != "it is not up" || time.Since(began) < time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// TestAPodWhoseNamespaceIsGone is what a kill between two steps leaves: its teardown must not fail for that.
func TestAPodWhoseNamespaceIsGone(t *testing.T) {
	p := Pod{NetNS: filepath.Join(t.TempDir(), "net"), Host: HostName(t.Name()), Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}
	if s, err := Inspect(p.NetNS); err != nil || !s.Gone || s.Exists {
		t.Errorf("its state is %+v, %v", s, err)
	}
	for range 2 {
		if err := Disconnect(p); err != nil {
			t.Errorf("disconnect: %v", err)
		}
	}
	if _, err := Connect(p, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("connect: %v", err)
	}
	if err := Complete(p); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("complete: %v", err)
	}
	if err := Attach(p, 1<<30, 1); !errors.As(err, &netlink.LinkNotFoundError{}) {
		t.Errorf("attach: %v", err)
	}
}

func TestThisNamespaceHasALoopbackDevice(t *testing.T) {
	ports, err := Ports()
	if err != nil {
		t.Fatal(err)
	}
	for index, p := range ports {
		if p.Index != index || p.Name == "" || strings.HasPrefix(p.Name, "lo") && p.Master != 0 {
			t.Errorf("%d: %+v", index, p)
		}
	}
	if p := ports[1]; p.Name != "lo" {
		t.Errorf("the first device is %+v", p)
	}
}
