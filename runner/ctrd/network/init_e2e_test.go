//go:build e2e

package network_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/nat"
)

func TestAFlushedFirewallAndADeletedBridgeComeBack(t *testing.T) {
	netbed.Outside(t)
	b := netbed.New(t, "10.199.5.0/24").Start(t)
	p, _ := b.Up(t, "a")
	netbed.WantAnswer(t, p.NetNS, "tcp", netbed.OutsideAddr+":80", netbed.UplinkAddr)
	for _, flush := range []string{"iptables -F", "nft delete table ip " + nat.TablePrefix + bridge.SubnetID(b.Parts().Bridge.CIDRs), "nft flush ruleset && iptables -P FORWARD DROP"} {
		netbed.Tool(t, "sh", "-c", flush)
		if _, err := netbed.Ask(t, p.NetNS, "tcp", netbed.OutsideAddr+":80"); err == nil {
			t.Fatalf("%s changes nothing, so this test proves nothing", flush)
		}
		if err := b.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		netbed.WantAnswer(t, p.NetNS, "tcp", netbed.OutsideAddr+":80", netbed.UplinkAddr)
	}
	netbed.Tool(t, "ip", "link", "del", b.Parts().Bridge.Name)
	q, _ := b.Up(t, "b")
	netbed.WantAnswer(t, q.NetNS, "tcp", netbed.OutsideAddr+":80", netbed.UplinkAddr)
	if again := netbed.In(t, b.Dir, "10.199.5.0/24"); again.Init(t.Context()) != nil {
		t.Error("the bridge was not made as ours")
	}
}

func TestConfigurationsOfTheHostAreUsed(t *testing.T) {
	b := netbed.New(t, "")
	writeForeign(t, b, "20-late.conflist", `{"cniVersion":"1.0.0","name":"late","plugins":[{"type":"nonsense"}]}`)
	writeForeign(t, b, "10-early.conf", `{"cniVersion":"1.0.0","name":"early","type":"bridge","bridge":"early0","isGateway":true,
		"ipam":{"type":"host-local","dataDir":"`+b.Dir+`/hl","subnet":"10.199.10.0/24"}}`)
	if err := b.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bridge.DeleteDevice("early0") })
	p, ip := b.Up(t, "x")
	if ip != "10.199.10.2" {
		t.Error(ip)
	}
	netbed.Serve(t, p.NetNS, ":80")
	netbed.WantAnswer(t, "", "tcp", ip+":80", "10.199.10.1")
	if _, err := b.Setup(t.Context(), b.Pod(t, "y", network.PortMapping{HostPort: 1, ContainerPort: 1})); err == nil || !strings.Contains(err.Error(), "portMappings") {
		t.Errorf("a hostPort that nobody would open: %v", err)
	}
	if _, err := os.Stat(b.ConfPath()); err == nil {
		t.Error("our own configuration was written although there is another")
	}
	if err := os.Remove(filepath.Join(b.Dir, "net.d", "10-early.conf")); err != nil {
		t.Fatal(err)
	}
	if err := netbed.In(t, b.Dir, "").Init(t.Context()); err == nil || !strings.Contains(err.Error(), "plugin nonsense is missing") {
		t.Errorf("a plugin that is missing: %v", err)
	}
}

func TestAFailedSetupLeavesNothing(t *testing.T) {
	b := netbed.New(t, "10.199.11.0/30").Start(t) // room for one pod
	_, _ = b.Up(t, "one")
	before := b.Traces(t)
	if _, err := b.Setup(t.Context(), b.Pod(t, "two")); err == nil || !strings.Contains(err.Error(), "no IP addresses available") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Setup(ctx, b.Pod(t, "three")); err == nil {
		t.Error("a cancelled Setup worked")
	}
	b.Settles(t, before)
}

func TestAllocationsThatAPowerCutEmptiedAreFreed(t *testing.T) {
	b := netbed.New(t, "10.199.12.0/30").Start(t)
	path := filepath.Join(b.Allocations(), "10.199.12.2")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = b.Up(t, "one")
}

func TestWithoutIptablesNftablesIsUsed(t *testing.T) {
	netbed.Tool(t, "iptables", "-P", "FORWARD", "ACCEPT")
	defer netbed.Tool(t, "iptables", "-P", "FORWARD", "DROP")
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.13.0/24,fd00:199:13::/64").Start(t)
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
	if o := b.Parts(); len(o.Filter.Sets) != 0 || o.NAT.Name() != nat.NFTables {
		t.Fatalf("%d sets, %s", len(o.Filter.Sets), o.NAT.Name())
	}
	t.Setenv("PATH", whole)
	before := b.Traces(t)
	t.Setenv("PATH", path)
	p, _ := b.Up(t, "a", network.PortMapping{HostPort: 8080, ContainerPort: 80})
	stop := netbed.Serve(t, p.NetNS, ":80")
	netbed.WantAnswer(t, p.NetNS, "tcp", netbed.OutsideAddr+":80", netbed.UplinkAddr)
	netbed.WantAnswer(t, p.NetNS, "tcp", "[2001:db8::1]:80", "2001:db8::2")
	netbed.WantAnswer(t, "", "tcp", "127.0.0.1:8080", "*")
	netbed.WantAnswer(t, out, "tcp", netbed.UplinkAddr+":8080", "*")
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	stop()
	b.Unpin(t, p)
	t.Setenv("PATH", whole)
	b.Settles(t, before)
	t.Setenv("PATH", path)
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", whole)
	if s := netbed.Tool(t, "nft", "list", "ruleset"); strings.Contains(s, "monopod") {
		t.Error(s)
	}
}

func TestDestroyLeavesTheHostAsItWas(t *testing.T) {
	b := netbed.New(t, "10.199.15.0/24,fd00:199:15::/64")
	clean := func() string {
		s := b.Traces(t)
		var keep []string
		for l := range strings.Lines(s) {
			if strings.Contains(l, "10.199.15") || strings.Contains(strings.ToLower(l), "monopod") {
				keep = append(keep, l)
			}
		}
		return strings.Join(keep, "")
	}
	b.Start(t)
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
