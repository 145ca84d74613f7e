//go:build e2e

package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/nat"
)

func TestAFlushedFirewallAndADeletedBridgeComeBack(t *testing.T) {
	outside(t)
	b := newBed(t, "10.199.5.0/24").init(t)
	p, _ := b.up(t, "a")
	wantAnswer(t, p.NetNS, "tcp", outsideAddr+":80", uplinkAddr)
	for _, flush := range []string{"iptables -F", "nft delete table ip " + nat.TablePrefix + bridge.SubnetID(b.active().own.bridge.CIDRs), "nft flush ruleset && iptables -P FORWARD DROP"} {
		tool(t, "sh", "-c", flush)
		if _, err := ask(t, p.NetNS, "tcp", outsideAddr+":80"); err == nil {
			t.Fatalf("%s changes nothing, so this test proves nothing", flush)
		}
		if err := b.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, p.NetNS, "tcp", outsideAddr+":80", uplinkAddr)
	}
	tool(t, "ip", "link", "del", b.active().own.bridge.Name)
	q, _ := b.up(t, "b")
	wantAnswer(t, q.NetNS, "tcp", outsideAddr+":80", uplinkAddr)
	if again := bedIn(t, b.dir, "10.199.5.0/24"); again.Init(t.Context()) != nil {
		t.Error("the bridge was not made as ours")
	}
}

func TestSeveralMonopodsOnOneHost(t *testing.T) {
	one := newBed(t, "10.199.6.0/24").init(t)
	if got := one.active().own.bridge.Name; got != bridge.DefaultBridge {
		t.Errorf("first bridge %s", got)
	}
	two := newBed(t, "10.199.7.0/24").init(t)
	if got, want := two.active().own.bridge.Name, "mp-"+bridge.SubnetID(two.active().own.bridge.CIDRs); got != want {
		t.Errorf("second bridge %s, want %s", got, want)
	}
	same := newBed(t, "10.199.6.0/24")
	err := same.Init(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another monopod ("+one.dir) || !strings.Contains(err.Error(), "set podCIDR") {
		t.Errorf("same subnet: %v", err)
	}
	within := newBed(t, "10.199.6.128/25")
	if err := within.Init(t.Context()); err == nil {
		t.Error("a part of another's subnet was accepted")
	}
	// Restarts of both find their own again, also when their configuration file is lost.
	for _, b := range []*bed{one, two} {
		name := b.active().own.bridge.Name
		for range 2 {
			again := bedIn(t, b.dir, b.cfg.PodCIDR)
			if err := again.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := again.active().own.bridge.Name; got != name {
				t.Errorf("after a restart %s, before %s", got, name)
			}
			if b == one {
				if err := os.Remove(b.ownConfPath()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p, _ := one.up(t, "p")
	q, qIP := two.up(t, "q")
	serve(t, q.NetNS, ":80")
	wantAnswer(t, "", "tcp", qIP+":80", "10.199.7.1")
	_ = p
}

// TestMonopodsThatStartAtTheSameTimeDoNotShareABridge: both find that the usual name is free.
func TestMonopodsThatStartAtTheSameTimeDoNotShareABridge(t *testing.T) {
	for round := range 5 {
		beds := []*bed{newBed(t, fmt.Sprintf("10.199.%d.0/24", 100+2*round)), newBed(t, fmt.Sprintf("10.199.%d.0/24", 101+2*round))}
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
			name, gateway := b.active().own.bridge.Name, bridge.Gateway(b.active().own.bridge.CIDRs[0])
			link, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
			if err != nil || len(addrs) != 1 || addrs[0].IPNet.String() != gateway.String() || link.Attrs().Alias != bridgeAlias(b.cfg.DataDir) {
				t.Errorf("round %d: %s has %v (%v) and belongs to %q, want %s and %q", round, name, addrs, err, link.Attrs().Alias, gateway, bridgeAlias(b.cfg.DataDir))
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
	one := newBed(t, "10.199.8.0/24").init(t)
	before := one.traces(t)
	p, _ := one.up(t, "p")
	within := bedIn(t, one.dir, "10.199.8.0/25")
	if err := within.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "still has 1 pods") {
		t.Errorf("overlap with pods of the former subnet: %v", err)
	}
	if err := one.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	one.unpin(t, p)
	one.settles(t, before)
	within = bedIn(t, one.dir, "10.199.8.0/25").init(t)
	if got := within.active().own.bridge.Name; got != bridge.DefaultBridge {
		t.Errorf("the unused bridge was not taken over, but %s", got)
	}
	_, ip := within.up(t, "q")
	if !strings.HasPrefix(ip, "10.199.8.") {
		t.Error(ip)
	}
}

func TestOverlapWithTheHostIsRefused(t *testing.T) {
	outside(t)
	tool(t, "ip", "route", "add", "10.199.32.0/20", "via", outsideAddr)
	defer tool(t, "ip", "route", "del", "10.199.32.0/20")
	for cidr, want := range map[string]string{
		"10.199.40.0/24": "overlaps the route 10.199.32.0/20 by up0", "198.51.100.128/25": "overlaps the address 198.51.100.2/24 of up0",
		"10.199.9.0/31": "too small", "10.199.9.1/24": "did you mean 10.199.9.0/24", "nonsense": "is no subnet",
	} {
		err := newBed(t, cidr).Init(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "podCIDR") {
			t.Errorf("%s: error %v, want %q", cidr, err, want)
		}
	}
}

func TestConfigurationsOfTheHostAreUsed(t *testing.T) {
	b := newBed(t, "")
	writeForeign(t, b, "20-late.conflist", `{"cniVersion":"1.0.0","name":"late","plugins":[{"type":"nonsense"}]}`)
	writeForeign(t, b, "10-early.conf", `{"cniVersion":"1.0.0","name":"early","type":"bridge","bridge":"early0","isGateway":true,
		"ipam":{"type":"host-local","dataDir":"`+b.dir+`/hl","subnet":"10.199.10.0/24"}}`)
	if err := b.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bridge.DeleteDevice("early0") })
	p, ip := b.up(t, "x")
	if ip != "10.199.10.2" {
		t.Error(ip)
	}
	serve(t, p.NetNS, ":80")
	wantAnswer(t, "", "tcp", ip+":80", "10.199.10.1")
	if _, err := b.Setup(t.Context(), b.pod(t, "y", PortMapping{HostPort: 1, ContainerPort: 1})); err == nil || !strings.Contains(err.Error(), "portMappings") {
		t.Errorf("a hostPort that nobody would open: %v", err)
	}
	if _, err := os.Stat(b.ownConfPath()); err == nil {
		t.Error("our own configuration was written although there is another")
	}
	if err := os.Remove(filepath.Join(b.dir, "net.d", "10-early.conf")); err != nil {
		t.Fatal(err)
	}
	if err := bedIn(t, b.dir, "").Init(t.Context()); err == nil || !strings.Contains(err.Error(), "plugin nonsense is missing") {
		t.Errorf("a plugin that is missing: %v", err)
	}
}

func TestAFailedSetupLeavesNothing(t *testing.T) {
	b := newBed(t, "10.199.11.0/30").init(t) // room for one pod
	_, _ = b.up(t, "one")
	before := b.traces(t)
	if _, err := b.Setup(t.Context(), b.pod(t, "two")); err == nil || !strings.Contains(err.Error(), "no IP addresses available") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Setup(ctx, b.pod(t, "three")); err == nil {
		t.Error("a cancelled Setup worked")
	}
	b.settles(t, before)
}

func TestAllocationsThatAPowerCutEmptiedAreFreed(t *testing.T) {
	b := newBed(t, "10.199.12.0/30").init(t)
	path := filepath.Join(b.dir, "data", "networks", ownNetwork, "10.199.12.2")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = b.up(t, "one")
}

func TestWithoutIptablesNftablesIsUsed(t *testing.T) {
	tool(t, "iptables", "-P", "FORWARD", "ACCEPT")
	defer tool(t, "iptables", "-P", "FORWARD", "DROP")
	out := outside(t)
	b := newBed(t, "10.199.13.0/24,fd00:199:13::/64").init(t)
	path := t.TempDir()
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(nft, filepath.Join(path, "nft")); err != nil {
		t.Fatal(err)
	}
	whole := os.Getenv("PATH")
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	if err := b.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := b.active().own; len(o.filter.Sets) != 0 || o.nat.Name() != nat.NFTables {
		t.Fatalf("%d sets, %s", len(o.filter.Sets), o.nat.Name())
	}
	t.Setenv("PATH", whole)
	before := b.traces(t)
	t.Setenv("PATH", path)
	p, _ := b.up(t, "a", PortMapping{HostPort: 8080, ContainerPort: 80})
	stop := serve(t, p.NetNS, ":80")
	wantAnswer(t, p.NetNS, "tcp", outsideAddr+":80", uplinkAddr)
	wantAnswer(t, p.NetNS, "tcp", "[2001:db8::1]:80", "2001:db8::2")
	wantAnswer(t, "", "tcp", "127.0.0.1:8080", "*")
	wantAnswer(t, out, "tcp", uplinkAddr+":8080", "*")
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	stop()
	b.unpin(t, p)
	t.Setenv("PATH", whole)
	b.settles(t, before)
	t.Setenv("PATH", path)
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", whole)
	if s := tool(t, "nft", "list", "ruleset"); strings.Contains(s, "monopod") {
		t.Error(s)
	}
}

func TestBothAddressFamilies(t *testing.T) {
	tool(t, "ip6tables", "-P", "FORWARD", "DROP")
	outside(t)
	b := newBed(t, "fd00:199:14::/64, 10.199.14.0/24").init(t)
	p := b.pod(t, "a")
	ips, err := b.Setup(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(ips) != 2 || !strings.HasPrefix(ips[0], "10.199.14.") || !strings.HasPrefix(ips[1], "fd00:199:14::") {
		t.Errorf("addresses %v", ips)
	}
	wantAnswer(t, p.NetNS, "tcp", outsideAddr+":80", uplinkAddr)
	wantAnswer(t, p.NetNS, "tcp", "[2001:db8::1]:80", "2001:db8::2")
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func TestDestroyLeavesTheHostAsItWas(t *testing.T) {
	b := newBed(t, "10.199.15.0/24,fd00:199:15::/64")
	clean := func() string {
		s := b.traces(t)
		var keep []string
		for l := range strings.Lines(s) {
			if strings.Contains(l, "10.199.15") || strings.Contains(strings.ToLower(l), "monopod") {
				keep = append(keep, l)
			}
		}
		return strings.Join(keep, "")
	}
	b.init(t)
	if clean() == "" {
		t.Fatal("Init left no trace, so this test proves nothing")
	}
	for range 2 {
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := clean(); s != "" {
		t.Errorf("left behind:\n%s", s)
	}
}
