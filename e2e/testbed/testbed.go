// Package testbed provides what end-to-end tests need from the machine: timeouts, unused subnets and unused ports.
//
// It must not reserve anything: what it returns is unused at that moment. For tests only.
package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// Patience is the timeout of conditions in tests, far longer than they should ever take. MONOPOD_E2E_PATIENCE overrides it for slow
// machines, such as the VM of .ci/vm.
func Patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("MONOPOD_E2E_PATIENCE")); err == nil {
		return d
	}
	return time.Minute
}

// Subnets returns subnets of 256 addresses, one after the other.
type Subnets struct {
	// Prefix is the first half of all addresses, as "10.213". MONOPOD_E2E_SUBNETS overrides it; concurrent test runs need different ones.
	Prefix string
	taken  atomic.Int32
}

// Take returns the next subnet without an address on the machine, so that leftovers of a killed run do not matter.
func (s *Subnets) Take(t testing.TB) string {
	t.Helper()
	prefix := s.Prefix
	if p := os.Getenv("MONOPOD_E2E_SUBNETS"); p != "" {
		prefix = p
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := s.next(prefix, addresses)
	if err != nil {
		t.Fatal(err)
	}
	return subnet.String()
}

// next starts again from the first subnet after the last one.
func (s *Subnets) next(prefix string, addresses []net.Addr) (netip.Prefix, error) {
	const all = 255
	for range all {
		subnet, err := netip.ParsePrefix(fmt.Sprintf("%s.%d.0/24", prefix, (s.taken.Add(1)-1)%all+1))
		if err != nil {
			return subnet, err
		}
		if !slices.ContainsFunc(addresses, func(a net.Addr) bool {
			of, err := netip.ParsePrefix(a.String())
			return err == nil && of.Overlaps(subnet)
		}) {
			return subnet, nil
		}
	}
	return netip.Prefix{}, errors.New("no subnet of " + prefix + " is free")
}

// Ports returns ports of this machine, each only once in a long time. They are below the range for outgoing connections, and start at a
// different one in each process: no process listens on the ports of pods, so other processes cannot detect that they are in use.
type Ports struct{ taken atomic.Int32 }

// Take returns the next unused port.
func (p *Ports) Take(t testing.TB) int32 {
	t.Helper()
	const first, all = 20000, 12000
	for range all {
		port := first + (int32(os.Getpid()%all*97)+p.taken.Add(1))%all
		if unused(fmt.Sprintf(":%d", port)) {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func unused(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	defer l.Close()
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	return c.Close() == nil
}
