//go:build e2e

package bridge_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network/bridge"
)

func TestSeveralMonopodsOnOneHost(t *testing.T) {
	one := netbed.New(t, "10.199.6.0/24").Start(t)
	if got := one.Parts().Bridge.Name; got != bridge.DefaultBridge {
		t.Errorf("first bridge %s", got)
	}
	two := netbed.New(t, "10.199.7.0/24").Start(t)
	if got, want := two.Parts().Bridge.Name, "mp-"+bridge.SubnetID(two.Parts().Bridge.CIDRs); got != want {
		t.Errorf("second bridge %s, want %s", got, want)
	}
	same := netbed.New(t, "10.199.6.0/24")
	err := same.Init(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another monopod ("+one.Dir) || !strings.Contains(err.Error(), "set podCIDR") {
		t.Errorf("same subnet: %v", err)
	}
	within := netbed.New(t, "10.199.6.128/25")
	if err := within.Init(t.Context()); err == nil {
		t.Error("a part of another's subnet was accepted")
	}
	// Restarts of both find their own again, also when their configuration file is lost.
	for _, b := range []*netbed.Bed{one, two} {
		name := b.Parts().Bridge.Name
		for range 2 {
			again := netbed.In(t, b.Dir, b.Config.PodCIDR)
			if err := again.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := again.Parts().Bridge.Name; got != name {
				t.Errorf("after a restart %s, before %s", got, name)
			}
			if b == one {
				if err := os.Remove(b.ConfPath()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p, _ := one.Up(t, "p")
	q, qIP := two.Up(t, "q")
	netbed.Serve(t, q.NetNS, ":80")
	netbed.WantAnswer(t, "", "tcp", qIP+":80", "10.199.7.1")
	_ = p
}

// TestMonopodsThatStartAtTheSameTimeDoNotShareABridge: both find that the usual name is free.
func TestMonopodsThatStartAtTheSameTimeDoNotShareABridge(t *testing.T) {
	for round := range 5 {
		beds := []*netbed.Bed{netbed.New(t, fmt.Sprintf("10.199.%d.0/24", 100+2*round)), netbed.New(t, fmt.Sprintf("10.199.%d.0/24", 101+2*round))}
		var wg sync.WaitGroup
		errs := make([]error, len(beds))
		for i, b := range beds {
			wg.Go(func() { errs[i] = b.Init(t.Context()) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, b := range beds {
			name, gateway := b.Parts().Bridge.Name, bridge.Gateway(b.Parts().Bridge.CIDRs[0])
			link, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
			if err != nil || len(addrs) != 1 || addrs[0].IPNet.String() != gateway.String() || link.Attrs().Alias != b.Alias() {
				t.Errorf("round %d: %s has %v (%v) and belongs to %q, want %s and %q", round, name, addrs, err, link.Attrs().Alias, gateway, b.Alias())
			}
		}
		for _, b := range beds {
			if err := b.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAnotherPodCIDR(t *testing.T) {
	one := netbed.New(t, "10.199.8.0/24").Start(t)
	before := one.Traces(t)
	p, _ := one.Up(t, "p")
	within := netbed.In(t, one.Dir, "10.199.8.0/25")
	if err := within.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "still has 1 pods") {
		t.Errorf("overlap with pods of the former subnet: %v", err)
	}
	if err := one.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	one.Unpin(t, p)
	one.Settles(t, before)
	within = netbed.In(t, one.Dir, "10.199.8.0/25").Start(t)
	if got := within.Parts().Bridge.Name; got != bridge.DefaultBridge {
		t.Errorf("the unused bridge was not taken over, but %s", got)
	}
	_, ip := within.Up(t, "q")
	if !strings.HasPrefix(ip, "10.199.8.") {
		t.Error(ip)
	}
}

func TestOverlapWithTheHostIsRefused(t *testing.T) {
	netbed.Outside(t)
	netbed.Tool(t, "ip", "route", "add", "10.199.32.0/20", "via", netbed.OutsideAddr)
	defer netbed.Tool(t, "ip", "route", "del", "10.199.32.0/20")
	for cidr, want := range map[string]string{
		"10.199.40.0/24": "overlaps the route 10.199.32.0/20 by up0", "198.51.100.128/25": "overlaps the address 198.51.100.2/24 of up0",
		"10.199.9.0/31": "too small", "10.199.9.1/24": "did you mean 10.199.9.0/24", "nonsense": "is not a subnet",
	} {
		err := netbed.New(t, cidr).Init(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "podCIDR") {
			t.Errorf("%s: error %v, want %q", cidr, err, want)
		}
	}
}
