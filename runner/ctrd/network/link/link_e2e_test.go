//go:build e2e

package link

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestAnAddedAddressIsDeliveredAtOnce: a pod's first packet over IPv6 got no answer when the machine was busy.
func TestAnAddedAddressIsDeliveredAtOnce(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprintf("b%d", i)
		dev := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(dev); err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParsePrefix(fmt.Sprintf("fd00:%x::1/64", i+1))
		if err := errors.Join(AddAddr(dev, addr), netlink.LinkSetUp(dev), Delivered(dev, []netip.Prefix{addr})); err != nil {
			t.Fatal(err)
		}
		// One read of /proc, which is faster than the kernel's worker.
		routes, err := os.ReadFile("/proc/thread-self/net/ipv6_route")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%x 80 ", addr.Addr().AsSlice()); !strings.Contains(string(routes), want) {
			t.Fatalf("address %d is not delivered yet:\n%s", i, routes)
		}
	}
}
