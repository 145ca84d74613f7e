//go:build e2e

package network_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/filter"
	"monopod/runner/ctrd/network/nat"
)

// TestNothingComesBackWhileItIsRemoved: `monopod cleanup` begins to watch, and removes, at the same moment.
func TestNothingComesBackWhileItIsRemoved(t *testing.T) {
	for round := range 5 {
		b := netbed.New(t, fmt.Sprintf("10.199.%d.0/24", 120+round))
		p := b.Pod(t, "late")
		if err := b.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var g, watch errgroup.Group
		watch.Go(func() error { return b.Watch(ctx) })
		g.Go(func() error { return b.Destroy(ctx) })
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := b.Setup(ctx, p); !errors.Is(err, network.ErrRemoved) {
			t.Errorf("a pod that comes after the removal: %v", err)
		}
		network.CheckAll(ctx, b.Network)
		cancel()
		if err := watch.Wait(); err != nil {
			t.Error(err)
		}
		if s := b.Traces(t); strings.Contains(s, "MONOPOD") || strings.Contains(s, nat.TablePrefix) {
			t.Fatalf("it is back:\n%s", s)
		}
		if err := errors.Join(b.Init(t.Context()), b.Destroy(t.Context())); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

// TestRemovalTakesAwayWhateverLeadsToOurChains: jumps that were made twice, and those of an administrator.
func TestRemovalTakesAwayWhateverLeadsToOurChains(t *testing.T) {
	for _, kind := range []string{"nft", "legacy"} {
		t.Run(kind, func(t *testing.T) {
			useIptables(t, kind)
			before := netbed.Tool(t, "iptables", "-S")
			b := netbed.New(t, "10.199.126.0/24").Start(t)
			cidrs := b.Parts().Bridge.CIDRs
			fwd, in := filter.ForwardChain(cidrs), filter.InputChain(cidrs)
			for _, command := range []string{
				"-I FORWARD -j " + fwd, "-A FORWARD -j " + fwd, "-A FORWARD -i lo -m comment --comment 'two words' -j " + fwd,
				"-N OPS", "-A OPS -p tcp --dport 1 -g " + in, "-A INPUT -j OPS", "-A " + fwd + " -j " + in,
			} {
				netbed.Sh(t, "", "iptables "+command)
			}
			if err := b.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			netbed.Sh(t, "", "iptables -D INPUT -j OPS; iptables -F OPS; iptables -X OPS")
			if after := netbed.Tool(t, "iptables", "-S"); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

// TestPodsDoNotReachTheLoopbackAddressesOfTheHost: route_localnet, which hostPorts on 127.0.0.1 need, would let in what a
// pod with NET_ADMIN routes to them by the bridge (CVE-2020-8558).
func TestPodsDoNotReachTheLoopbackAddressesOfTheHost(t *testing.T) {
	b := netbed.New(t, "10.199.128.0/24").Start(t)
	p, ip := b.Up(t, "a")
	o := b.Parts()
	const secret = "127.0.0.1:9876"
	netbed.Serve(t, "", secret)
	netbed.Sh(t, p.NetNS, "echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet; echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet")
	netbed.Sh(t, p.NetNS, "ip link set lo up; ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1/32 via "+bridge.Gateway(o.Bridge.CIDRs[0]).Addr().String()+" dev eth0 src "+ip)
	open := func() error {
		_, tcp := netbed.Ask(t, p.NetNS, "tcp", secret)
		_, udp := netbed.Ask(t, p.NetNS, "udp", secret)
		if (tcp == nil) != (udp == nil) {
			t.Errorf("tcp: %v, udp: %v", tcp, udp)
		}
		return tcp
	}
	closed := func(by string) {
		t.Helper()
		if open() == nil {
			t.Errorf("with %s a pod reaches what listens on %s only", by, secret)
		}
	}
	closed("nftables")
	netbed.Sh(t, "", "nft flush chain ip "+nat.TablePrefix+bridge.SubnetID(o.Bridge.CIDRs)+" raw")
	if err := open(); err != nil {
		t.Fatalf("without the rule the host does not answer either, so this test proves nothing: %v", err)
	}
	// As on a kernel without nftables.
	c := filter.Config{Bridge: o.Bridge.Name, CIDRs: o.Bridge.CIDRs, Loopback: true}
	f := filter.New(t.Context(), c)
	if err := f.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed("iptables")
	if err := o.Filter.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Fatalf("without that rule the host does not answer either: %v", err)
	}
	if err := b.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed("the rule that was repaired")
}
