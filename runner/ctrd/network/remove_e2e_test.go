//go:build e2e

package network

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/filter"
	"monopod/runner/ctrd/network/nat"
)

// TestNothingComesBackWhileItIsRemoved: `monopod cleanup` begins to watch, and removes, at the same moment.
func TestNothingComesBackWhileItIsRemoved(t *testing.T) {
	for round := range 5 {
		b := newBed(t, fmt.Sprintf("10.199.%d.0/24", 120+round))
		p := b.pod(t, "late")
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
		if _, err := b.Setup(ctx, p); !errors.Is(err, errRemoved) {
			t.Errorf("a pod that comes after the removal: %v", err)
		}
		b.check(ctx, scope{all: true})
		cancel()
		if err := watch.Wait(); err != nil {
			t.Error(err)
		}
		if s := b.traces(t); strings.Contains(s, "MONOPOD") || strings.Contains(s, nat.TablePrefix) {
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
			before := tool(t, "iptables", "-S")
			b := newBed(t, "10.199.126.0/24").init(t)
			cidrs := b.active().own.bridge.CIDRs
			fwd, in := filter.ForwardChain(cidrs), filter.InputChain(cidrs)
			for _, command := range []string{
				"-I FORWARD -j " + fwd, "-A FORWARD -j " + fwd, "-A FORWARD -i lo -m comment --comment 'two words' -j " + fwd,
				"-N OPS", "-A OPS -p tcp --dport 1 -g " + in, "-A INPUT -j OPS", "-A " + fwd + " -j " + in,
			} {
				sh(t, "", "iptables "+command)
			}
			if err := b.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			sh(t, "", "iptables -D INPUT -j OPS; iptables -F OPS; iptables -X OPS")
			if after := tool(t, "iptables", "-S"); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

// TestAJumpThatIsThereTwiceBecomesOne: two programs can have added it at the same time.
func TestAJumpThatIsThereTwiceBecomesOne(t *testing.T) {
	b := newBed(t, "10.199.127.0/24").init(t)
	o := b.active().own
	for from, chain := range map[string]string{"FORWARD": filter.ForwardChain(o.bridge.CIDRs), "INPUT": filter.InputChain(o.bridge.CIDRs)} {
		sh(t, "", "iptables -A "+from+" -j "+chain)
		for range 2 {
			if err := o.filter.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := tool(t, "iptables", "-S"); strings.Count(s, " -j "+chain+"\n") != 1 {
			t.Errorf("%s\n%s", chain, s)
		}
	}
}

// TestPodsDoNotReachTheLoopbackAddressesOfTheHost: route_localnet, which hostPorts on 127.0.0.1 need, would let in what a
// pod with NET_ADMIN routes to them by the bridge (CVE-2020-8558).
func TestPodsDoNotReachTheLoopbackAddressesOfTheHost(t *testing.T) {
	b := newBed(t, "10.199.128.0/24").init(t)
	p, ip := b.up(t, "a")
	o := b.active().own
	const secret = "127.0.0.1:9876"
	serve(t, "", secret)
	sh(t, p.NetNS, "echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet; echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet")
	sh(t, p.NetNS, "ip link set lo up; ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1/32 via "+bridge.Gateway(o.bridge.CIDRs[0]).Addr().String()+" dev eth0 src "+ip)
	open := func() error {
		_, tcp := ask(t, p.NetNS, "tcp", secret)
		_, udp := ask(t, p.NetNS, "udp", secret)
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
	sh(t, "", "nft flush chain ip "+nat.TablePrefix+bridge.SubnetID(o.bridge.CIDRs)+" raw")
	if err := open(); err != nil {
		t.Fatalf("without the rule the host does not answer either, so this test proves nothing: %v", err)
	}
	// As on a kernel without nftables.
	c := filter.Config{Bridge: o.bridge.Name, CIDRs: o.bridge.CIDRs, Loopback: true}
	f := filter.New(t.Context(), c)
	if err := f.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed("iptables")
	if err := o.filter.Apply(t.Context()); err != nil {
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
