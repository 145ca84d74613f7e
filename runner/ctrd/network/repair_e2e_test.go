//go:build e2e

package network

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

	"monopod/e2e/testbed"
	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
)

// watched is a bed whose network is kept.
type watched struct {
	*bed
	mu      sync.Mutex
	notices []Notice
}

// keepBed runs Watch for a bed until the test ends.
func keepBed(t *testing.T, b *bed) *watched {
	t.Helper()
	w := &watched{bed: b}
	b.notice = func(n Notice) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notices = append(w.notices, n)
	}
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

// quick asks without patience.
func quick(tb testing.TB, netns, addr string) error {
	tb.Helper()
	return inNet(tb, netns, func() error {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		_, err = c.Read(make([]byte, 100))
		return err
	})
}

func sh(t *testing.T, netns, command string) {
	t.Helper()
	if netns == "" {
		tool(t, "sh", "-c", command)
		return
	}
	tool(t, "nsenter", "--net="+netns, "sh", "-c", command)
}

func TestDamageIsRepaired(t *testing.T) {
	outside(t)
	b := newBed(t, "10.199.30.0/24,fd00:199:30::/64").init(t)
	w := keepBed(t, b)
	p, ip := b.up(t, "web", PortMapping{HostPort: 8080, ContainerPort: 80})
	other, _ := b.up(t, "other")
	serve(t, p.NetNS, ":80")
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
		func() error { return quick(t, "", "127.0.0.1:8080") },
		func() error { return quick(t, other.NetNS, uplinkAddr+":8080") },
		func() error { return quick(t, other.NetNS, net.JoinHostPort(ip, "80")) },
		func() error { return quick(t, p.NetNS, outsideAddr+":80") },
		func() error { return quick(t, p.NetNS, "[2001:db8::1]:80") },
	}
	w.works(t, all...)
	bridge, table := b.active().own.bridge.Name, nat.TablePrefix+bridge.SubnetID(b.active().own.bridge.CIDRs)
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
			sh(t, tt.netns, tt.command)
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
	if now := tool(t, "nsenter", "--net="+p.NetNS, "ip", "-o", "addr", "show", "eth0"); !strings.Contains(now, ip+"/24") {
		t.Errorf("the pod has another address: %s", now)
	}
}

func TestDamageThatCannotBeRepairedIsReportedOnce(t *testing.T) {
	b := newBed(t, "10.199.31.0/24").init(t)
	p, _ := b.up(t, "web")
	w := keepBed(t, b)
	w.works(t, func() error { return b.Repair(t.Context()) })
	b.work.Lock() // or the interface would be repaired before another one has its name
	sh(t, p.NetNS, "ip link set eth0 down && ip link set eth0 name old && ip link add eth0 type bridge && ip link set eth0 up")
	b.work.Unlock()
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
		b.check(t.Context(), scope{all: true})
	}
	if got := strings.Count(w.told(), want); got != 1 {
		t.Errorf("reported %d times", got)
	}
	sh(t, p.NetNS, "ip link del eth0")
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
	sh(t, "", "iptables-nft -P FORWARD ACCEPT")
	defer sh(t, "", "iptables-nft -P FORWARD DROP")
	sh(t, "", "iptables-legacy -P FORWARD DROP")
	defer sh(t, "", "iptables-legacy -P FORWARD ACCEPT")
	outside(t)
	b := newBed(t, "10.199.34.0/24").init(t)
	o := b.active().own
	if !o.filter.Legacy {
		t.Fatal("the tools are not taken for legacy ones")
	}
	rules := nat.Config{Bridge: o.bridge.Name, CIDRs: o.bridge.CIDRs, ID: bridge.SubnetID(o.bridge.CIDRs)}
	if err := o.nat.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.nat = nat.NewIPTables(rules)
	if err := o.nat.Replace(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w := keepBed(t, b)
	p, _ := b.up(t, "web", PortMapping{HostPort: 8080, ContainerPort: 80}, PortMapping{HostPort: 8081, ContainerPort: 80, HostIP: uplinkAddr})
	other, _ := b.up(t, "other", PortMapping{HostPort: 8082, ContainerPort: 80})
	serve(t, p.NetNS, ":80")
	works := []func() error{
		func() error { return quick(t, "", "127.0.0.1:8080") },
		func() error { return quick(t, "", uplinkAddr+":8081") },
		func() error { return quick(t, p.NetNS, uplinkAddr+":8080") },
		func() error { return quick(t, other.NetNS, uplinkAddr+":8080") },
		func() error { return quick(t, p.NetNS, outsideAddr+":80") },
	}
	w.works(t, works...)
	for _, command := range []string{"iptables-legacy -F", "iptables-legacy -t nat -F", "iptables-legacy -t nat -F MONOPOD-PORT-" + rules.ID} {
		sh(t, "", command)
		t.Logf("%s: repaired after %v", command, w.works(t, works...))
	}
	if err := b.Teardown(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if quick(t, "", "127.0.0.1:8080") == nil {
		t.Error("the port is still open")
	}
	if s := tool(t, "iptables-legacy-save"); !strings.Contains(s, "8082") || strings.Contains(s, "8081") {
		t.Errorf("the other pod's port is not what is left:\n%s", s)
	}
}

func TestHostPortsOfBothFamilies(t *testing.T) {
	out := outside(t)
	b := newBed(t, "10.199.35.0/24,fd00:199:35::/64").init(t)
	p, _ := b.up(t, "web",
		PortMapping{HostPort: 8080, ContainerPort: 80},
		PortMapping{HostPort: 8081, ContainerPort: 80, HostIP: "::"},
		PortMapping{HostPort: 8082, ContainerPort: 80, HostIP: "2001:db8::2"},
		PortMapping{HostPort: 8083, ContainerPort: 80, HostIP: "0.0.0.0"})
	other, _ := b.up(t, "other")
	serve(t, p.NetNS, ":80")
	for _, from := range []string{"", out, p.NetNS, other.NetNS} {
		for _, addr := range []string{uplinkAddr + ":8080", "[2001:db8::2]:8080", "[2001:db8::2]:8081", "[2001:db8::2]:8082", uplinkAddr + ":8083"} {
			wantAnswer(t, from, "tcp", addr, "*")
		}
		for _, addr := range []string{uplinkAddr + ":8081", uplinkAddr + ":8082", "[2001:db8::2]:8083"} {
			if quick(t, from, addr) == nil {
				t.Errorf("%s answers", addr)
			}
		}
	}
}

func TestAUDPFlowFollowsItsPort(t *testing.T) {
	b := newBed(t, "10.199.36.0/24").init(t)
	c, err := net.Dial("udp", "127.0.0.1:8053")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func() string {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte("?")) // the first write after a refusal reports that
		_, _ = c.Write([]byte("?"))
		buf := make([]byte, 100)
		n, _ := c.Read(buf)
		return string(buf[:n])
	}
	if got := ask(); got != "" {
		t.Fatalf("answered %q before there is a pod", got)
	}
	port := PortMapping{HostPort: 8053, ContainerPort: 53, Protocol: "UDP"}
	for _, id := range []string{"one", "two"} {
		p := b.pod(t, id, port)
		if _, err := b.Setup(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		serve(t, p.NetNS, ":53")
		if got := ask(); got == "" {
			t.Errorf("pod %s is not reached by a client that was there before it", id)
		}
		if err := b.Teardown(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHostPortsOfOtherMonopodsAreRefused(t *testing.T) {
	dir := t.TempDir()
	one, two := newBed(t, "10.199.37.0/24"), newBed(t, "10.199.38.0/24")
	for _, b := range []*bed{one, two} {
		b.claims = hostports.New(dir, b.cfg.DataDir, nil)
		b.init(t)
	}
	port := PortMapping{HostPort: 8080, ContainerPort: 80}
	p, _ := one.up(t, "web", port)
	q := two.pod(t, "web2", port)
	_, err := two.Setup(t.Context(), q)
	if held := new(hostports.HeldError); !errors.As(err, &held) || held.Pod != "default/p-web" {
		t.Fatalf("%v", err)
	}
	// kill -9 of the first monopod: another process, which knows nothing.
	again := bedIn(t, one.dir, "10.199.37.0/24")
	again.claims = hostports.New(dir, again.cfg.DataDir, nil)
	if _, err := two.Setup(t.Context(), q); err == nil {
		t.Fatal("the port of a pod whose monopod died was given away")
	}
	if err := errors.Join(again.Init(t.Context()), again.Adopt([]Pod{p}), again.Teardown(t.Context(), p)); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Setup(t.Context(), q); err != nil {
		t.Errorf("the port is free: %v", err)
	}
	if err := two.Teardown(t.Context(), q); err != nil {
		t.Fatal(err)
	}
}

// TestTheNextSandboxOfAPodTakesItsPortOver: it comes before the former one is torn down.
func TestTheNextSandboxOfAPodTakesItsPortOver(t *testing.T) {
	b := newBed(t, "10.199.39.0/24").init(t)
	port := PortMapping{HostPort: 8080, ContainerPort: 80}
	former, _ := b.up(t, "z-former", port)
	next, ip := b.up(t, "a-next", port)
	serve(t, next.NetNS, ":80")
	wantAnswer(t, "", "tcp", "127.0.0.1:8080", "*")
	if err := b.Teardown(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, "", "tcp", "127.0.0.1:8080", "*")
	if s := tool(t, "nft", "list", "ruleset"); strings.Count(s, "tcp . 8080 : "+ip) != 1 {
		t.Errorf("the port is not the next one's alone:\n%s", s)
	}
}

// TestDestroyIsNotRepaired: the keeper runs meanwhile.
func TestDestroyIsNotRepaired(t *testing.T) {
	b := newBed(t, "10.199.40.0/24").init(t)
	w := keepBed(t, b)
	_ = b.Repair(t.Context())
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.check(t.Context(), scope{all: true})
	if s := b.traces(t); strings.Contains(s, "10.199.40.") || strings.Contains(s, "device "+bridge.DefaultBridge) {
		t.Errorf("it is back: %s\n%s", w.told(), s)
	}
}
