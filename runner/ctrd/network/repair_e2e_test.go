//go:build e2e

package network_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/e2e/netbed"
	"monopod/e2e/testbed"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
)

// watched is a bed whose network is kept.
type watched struct {
	*netbed.Bed
	mu      sync.Mutex
	notices []network.Notice
}

// keepBed runs Watch for a bed until the test ends.
func keepBed(t *testing.T, b *netbed.Bed) *watched {
	t.Helper()
	w := &watched{Bed: b}
	network.SetNotice(b.Network, func(n network.Notice) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notices = append(w.notices, n)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Watch(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// told returns what was reported since the last call.
func (w *watched) told() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := fmt.Sprintf("%+v", w.notices)
	w.notices = nil
	return s
}

// works waits until everything answers, and returns how long that took.
func (w *watched) works(t *testing.T, checks ...func() error) time.Duration {
	t.Helper()
	var err error
	began := time.Now()
	for time.Since(began) < testbed.Patience() {
		err = nil
		for _, c := range checks {
			err = errors.Join(err, c())
		}
		if err == nil {
			return time.Since(began)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("it does not work again: %v; reported: %s", err, w.told())
	return 0
}

func TestDamageIsRepaired(t *testing.T) {
	netbed.Outside(t)
	b := netbed.New(t, "10.199.30.0/24,fd00:199:30::/64").Start(t)
	w := keepBed(t, b)
	p, ip := b.Up(t, "web", network.PortMapping{HostPort: 8080, ContainerPort: 80})
	other, _ := b.Up(t, "other")
	netbed.Serve(t, p.NetNS, ":80")
	p.Bandwidth = bandwidth.Limits{Ingress: 100e6, Egress: 100e6}
	if err := b.Limit(p); err != nil {
		t.Fatal(err)
	}
	all := []func() error{
		func() error {
			if !bandwidth.Applied(p.NetNS, p.Bandwidth) {
				return errors.New("its bandwidth is not limited")
			}
			return nil
		},
		func() error { return netbed.Quick(t, "", "127.0.0.1:8080") },
		func() error { return netbed.Quick(t, other.NetNS, netbed.UplinkAddr+":8080") },
		func() error { return netbed.Quick(t, other.NetNS, net.JoinHostPort(ip, "80")) },
		func() error { return netbed.Quick(t, p.NetNS, netbed.OutsideAddr+":80") },
		func() error { return netbed.Quick(t, p.NetNS, "[2001:db8::1]:80") },
	}
	w.works(t, all...)
	bridge, table := b.Parts().Bridge.Name, nat.TablePrefix+bridge.SubnetID(b.Parts().Bridge.CIDRs)
	host := link.HostName(p.SandboxID)
	tests := []struct{ name, netns, command, told string }{
		{"all rules are flushed", "", "nft flush ruleset; iptables -P FORWARD DROP", "rules"},
		{"iptables is flushed", "", "iptables -F; iptables -t nat -F; iptables -X", "let pods' traffic through"},
		{"our table is deleted", "", "nft delete table ip " + table, "masquerading"},
		{"our table of IPv6 is deleted", "", "nft delete table ip6 " + table, "masquerading"},
		{"a port is deleted", "", "nft flush map ip " + table + " ports", "hostPorts"},
		{"our rules are deleted", "", "nft flush chain ip " + table + " postrouting", "masquerading"},
		{"the bridge is deleted", "", "ip link del " + bridge, "was deleted"},
		{"the bridge is down", "", "ip link set " + bridge + " down", "it was down"},
		{"the bridge has lost its address", "", "ip addr flush dev " + bridge, "address 10.199.30.1/24 was removed"},
		{"the route to the pods is gone", "", "ip route del 10.199.30.0/24 dev " + bridge, "route 10.199.30.0/24"},
		{"the host's end is deleted", "", "ip link del " + host, "eth0 was deleted"},
		{"the host's end is down", "", "ip link set " + host + " down", "was down"},
		{"the port has left the bridge", "", "ip link set " + host + " nomaster", "detached"},
		{"the pod's address is removed", p.NetNS, "ip addr del " + ip + "/24 dev eth0", "address " + ip + "/24 was removed"},
		{"all of the pod's addresses are removed", p.NetNS, "ip addr flush dev eth0", "address fd00"},
		{"the pod's end is down", p.NetNS, "ip link set eth0 down", "eth0 of the pod: it was down"},
		{"the pod's default route is removed", p.NetNS, "ip route del default", "default route by 10.199.30.1"},
		{"the pod's end is deleted", p.NetNS, "ip link del eth0", "eth0 was deleted"},
		{"the limit of what it receives is removed", "", "tc qdisc del dev " + host + " root", "the limit of its bandwidth was removed"},
		{"the limit of what it sends is removed", p.NetNS, "tc qdisc del dev eth0 root", "the limit of its bandwidth was removed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.told()
			netbed.Sh(t, tt.netns, tt.command)
			t.Logf("repaired after %v", w.works(t, all...))
			// The notice follows the repair.
			for end := time.Now().Add(testbed.Patience()); ; time.Sleep(5 * time.Millisecond) {
				w.mu.Lock()
				said := fmt.Sprintf("%+v", w.notices)
				w.mu.Unlock()
				if strings.Contains(said, tt.told) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("reported %s, want %q", said, tt.told)
				}
			}
		})
	}
	if err := b.Repair(t.Context()); err != nil {
		t.Error(err)
	}
	if now := netbed.Tool(t, "nsenter", "--net="+p.NetNS, "ip", "-o", "addr", "show", "eth0"); !strings.Contains(now, ip+"/24") {
		t.Errorf("the pod has another address: %s", now)
	}
}

func TestDamageThatCannotBeRepairedIsReportedOnce(t *testing.T) {
	b := netbed.New(t, "10.199.31.0/24").Start(t)
	p, _ := b.Up(t, "web")
	w := keepBed(t, b)
	w.works(t, func() error { return b.Repair(t.Context()) })
	network.Work(b.Network).Lock() // or the interface would be repaired before another one has its name
	netbed.Sh(t, p.NetNS, "ip link set eth0 down && ip link set eth0 name old && ip link add eth0 type bridge && ip link set eth0 up")
	network.Work(b.Network).Unlock()
	want := "replaced by another device"
	w.works(t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, n := range w.notices {
			if n.Err != nil && n.Sandbox == p.SandboxID && strings.Contains(n.Damage, want) {
				return nil
			}
		}
		return errors.New("not reported yet")
	})
	for range 3 {
		network.CheckAll(t.Context(), b.Network)
	}
	if got := strings.Count(w.told(), want); got != 1 {
		t.Errorf("reported %d times", got)
	}
	netbed.Sh(t, p.NetNS, "ip link del eth0")
	w.works(t, func() error {
		if s := w.told(); !strings.Contains(s, "Err:<nil>") {
			return fmt.Errorf("reported %s", s)
		}
		return nil
	})
}

// useIptables makes the tools those of one interface of the kernel, until the test ends.
func useIptables(t *testing.T, kind string) {
	t.Helper()
	path := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-restore", "-save"} {
			program, err := exec.LookPath(name + "-" + kind + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(path, name+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", path+":"+os.Getenv("PATH"))
}

func TestAKernelWithoutNftables(t *testing.T) {
	useIptables(t, "legacy")
	netbed.Sh(t, "", "iptables-nft -P FORWARD ACCEPT")
	defer netbed.Sh(t, "", "iptables-nft -P FORWARD DROP")
	netbed.Sh(t, "", "iptables-legacy -P FORWARD DROP")
	defer netbed.Sh(t, "", "iptables-legacy -P FORWARD ACCEPT")
	netbed.Outside(t)
	b := netbed.New(t, "10.199.34.0/24").Start(t)
	o := b.Parts()
	if !o.Filter.Legacy {
		t.Fatal("the tools are not taken for legacy ones")
	}
	rules := nat.Config{Bridge: o.Bridge.Name, CIDRs: o.Bridge.CIDRs, ID: bridge.SubnetID(o.Bridge.CIDRs)}
	if err := o.NAT.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	network.SetNAT(b.Network, nat.NewIPTables(rules))
	o = b.Parts()
	if err := o.NAT.Replace(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w := keepBed(t, b)
	p, _ := b.Up(t, "web", network.PortMapping{HostPort: 8080, ContainerPort: 80}, network.PortMapping{HostPort: 8081, ContainerPort: 80, HostIP: netbed.UplinkAddr})
	other, _ := b.Up(t, "other", network.PortMapping{HostPort: 8082, ContainerPort: 80})
	netbed.Serve(t, p.NetNS, ":80")
	works := []func() error{
		func() error { return netbed.Quick(t, "", "127.0.0.1:8080") },
		func() error { return netbed.Quick(t, "", netbed.UplinkAddr+":8081") },
		func() error { return netbed.Quick(t, p.NetNS, netbed.UplinkAddr+":8080") },
		func() error { return netbed.Quick(t, other.NetNS, netbed.UplinkAddr+":8080") },
		func() error { return netbed.Quick(t, p.NetNS, netbed.OutsideAddr+":80") },
	}
	w.works(t, works...)
	for _, command := range []string{"iptables-legacy -F", "iptables-legacy -t nat -F", "iptables-legacy -t nat -F MONOPOD-PORT-" + rules.ID} {
		netbed.Sh(t, "", command)
		t.Logf("%s: repaired after %v", command, w.works(t, works...))
	}
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if netbed.Quick(t, "", "127.0.0.1:8080") == nil {
		t.Error("the port is still open")
	}
	if s := netbed.Tool(t, "iptables-legacy-save"); !strings.Contains(s, "8082") || strings.Contains(s, "8081") {
		t.Errorf("the other pod's port is not what is left:\n%s", s)
	}
}

// TestDestroyIsNotRepaired: the keeper runs meanwhile.
func TestDestroyIsNotRepaired(t *testing.T) {
	b := netbed.New(t, "10.199.40.0/24").Start(t)
	w := keepBed(t, b)
	_ = b.Repair(t.Context())
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	network.CheckAll(t.Context(), b.Network)
	if s := b.Traces(t); strings.Contains(s, "10.199.40.") || strings.Contains(s, "device "+bridge.DefaultBridge) {
		t.Errorf("it is back: %s\n%s", w.told(), s)
	}
}
