//go:build e2e

package netbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/nettest"
	"monopod/e2e/testbed"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/filter"
	"monopod/runner/ctrd/network/nat"
)

const (
	// UplinkAddr is the address of the host in the network of the machine outside.
	UplinkAddr = "198.51.100.2"
	// OutsideAddr is the address of that machine.
	OutsideAddr = "198.51.100.1"
)

// Tool runs a command of the host and returns its output.
func Tool(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// InNet runs fn with the calling thread in a network namespace; "" is the host's.
func InNet(tb testing.TB, netns string, fn func() error) error {
	tb.Helper()
	if netns == "" {
		return fn()
	}
	return linuxns.RunOnThread(func() error {
		fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return fn()
	})
}

// Serve answers every connection with the caller's address, until stop is called: its sockets keep the namespace.
func Serve(tb testing.TB, netns, addr string) (stop func()) {
	tb.Helper()
	var l net.Listener
	var u net.PacketConn
	err := InNet(tb, netns, func() (err error) {
		if l, err = net.Listen("tcp", addr); err != nil {
			return err
		}
		u, err = net.ListenPacket("udp", addr)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	stop = func() { _ = errors.Join(l.Close(), u.Close()) }
	tb.Cleanup(stop)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, host)
			c.Close()
		}
	}()
	go func() {
		b := make([]byte, 10)
		for {
			_, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(from.String())
			_, _ = u.WriteTo([]byte(host), from)
		}
	}()
	return stop
}

// Ask connects from netns and returns what the server says.
func Ask(tb testing.TB, netns, network, addr string) (string, error) {
	tb.Helper()
	var answer string
	err := InNet(tb, netns, func() error {
		c, err := net.DialTimeout(network, addr, time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if network == "udp" {
			_, _ = c.Write([]byte("?"))
		}
		b := make([]byte, 100)
		n, err := c.Read(b)
		answer = string(b[:n])
		return err
	})
	return answer, err
}

// WantAnswer checks what a server answers to a client in netns; "*" is any answer.
func WantAnswer(tb testing.TB, netns, network, addr, want string) {
	tb.Helper()
	got, err := Ask(tb, netns, network, addr)
	if err != nil || (want != "*" && got != want) {
		tb.Errorf("%s to %s %s: the server saw %q, want %q; %v", netns, network, addr, got, want, err)
	}
}

// Outside makes a machine behind the host's uplink which has no route to the pods.
func Outside(tb testing.TB) (netns string) {
	tb.Helper()
	dir := tb.TempDir()
	if err := linuxns.Pin(dir, linuxns.Set{Net: true}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", "up0").Run()
		_ = linuxns.Unpin(dir)
	})
	netns = filepath.Join(dir, "net")
	Tool(tb, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	Tool(tb, "ip", "addr", "add", UplinkAddr+"/24", "dev", "up0")
	Tool(tb, "ip", "-6", "addr", "add", "2001:db8::2/64", "dev", "up0", "nodad")
	Tool(tb, "ip", "link", "set", "up0", "up")
	Tool(tb, "nsenter", "--net="+netns, "true")
	Tool(tb, "sh", "-c", "exec 3<"+netns+"; ip link set up1 netns /proc/self/fd/3")
	Tool(tb, "nsenter", "--net="+netns, "ip", "addr", "add", OutsideAddr+"/24", "dev", "up1")
	Tool(tb, "nsenter", "--net="+netns, "ip", "-6", "addr", "add", "2001:db8::1/64", "dev", "up1", "nodad")
	Tool(tb, "nsenter", "--net="+netns, "ip", "link", "set", "up1", "up")
	Tool(tb, "ip", "route", "add", "default", "via", OutsideAddr)
	Tool(tb, "ip", "-6", "route", "add", "default", "via", "2001:db8::1")
	Serve(tb, netns, ":80")
	return netns
}

// Bed is the network of one monopod.
type Bed struct {
	*network.Network
	// Dir is the directory of all its files.
	Dir    string
	Config network.Config
}

// Parts are the parts of the default network.
type Parts struct {
	Bridge bridge.Spec
	Filter *filter.Rules
	NAT    nat.Backend
}

// New returns a network in a directory of its own. It does not exist yet.
func New(tb testing.TB, cidr string) *Bed {
	tb.Helper()
	return In(tb, tb.TempDir(), cidr)
}

// In is New for a directory, with an edited configuration.
func In(tb testing.TB, dir, cidr string, edit ...func(*network.Config)) *Bed {
	tb.Helper()
	cfg := network.Config{
		ConfDir: filepath.Join(dir, "net.d"), OwnConfDir: filepath.Join(dir, "own"), BinDirs: []string{plugins(tb)},
		DataDir: filepath.Join(dir, "data"), PodCIDR: cidr, Log: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	}
	for _, e := range edit {
		e(&cfg)
	}
	return &Bed{Network: network.New(cfg), Dir: dir, Config: cfg}
}

// plugins returns the directory of the CNI plugins that are built with monopod.
func plugins(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin", "cni")
		}
	}
	tb.Fatal("there is no go.mod above the directory of the test")
	return ""
}

// Parts returns the parts of the default network, which must exist.
func (b *Bed) Parts() (p Parts) {
	p.Bridge, p.Filter, p.NAT = network.PartsOf(b.Network)
	return p
}

// Alias returns the alias of the bridge.
func (b *Bed) Alias() string {
	_, alias, _ := network.NamesOf(b.Network)
	return alias
}

// ConfPath returns the path of the configuration of the default network.
func (b *Bed) ConfPath() string {
	_, _, path := network.NamesOf(b.Network)
	return path
}

// Allocations returns the directory of the addresses that the default network has allocated.
func (b *Bed) Allocations() string {
	name, _, _ := network.NamesOf(b.Network)
	return filepath.Join(b.Dir, "data", "networks", name)
}

// Start creates the network, until the test ends.
func (b *Bed) Start(tb testing.TB) *Bed {
	tb.Helper()
	tb.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	if err := b.Init(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return b
}

// Pod pins a network namespace for a pod that is not set up yet.
func (b *Bed) Pod(tb testing.TB, id string, ports ...network.PortMapping) network.Pod {
	tb.Helper()
	dir := filepath.Join(b.Dir, "ns", id)
	if err := linuxns.Pin(dir, linuxns.Set{Net: true}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := linuxns.Unpin(dir); err != nil {
			tb.Error(err)
		}
	})
	return network.Pod{SandboxID: id, NetNS: filepath.Join(dir, "net"), Namespace: "default", Name: "p-" + id, UID: "u-" + id, PortMappings: ports}
}

// Up makes a pod with network and returns its first address.
func (b *Bed) Up(tb testing.TB, id string, ports ...network.PortMapping) (network.Pod, string) {
	tb.Helper()
	p := b.Pod(tb, id, ports...)
	tb.Cleanup(func() {
		if err := b.Teardown(context.Background(), p); err != nil {
			tb.Error(err)
		}
	})
	ips, err := b.Setup(tb.Context(), p)
	if err != nil {
		tb.Fatal(err)
	}
	return p, ips[0]
}

// Unpin removes the namespace of a pod that was torn down, and with it its link.
func (b *Bed) Unpin(tb testing.TB, p network.Pod) {
	tb.Helper()
	if err := linuxns.Unpin(filepath.Dir(p.NetNS)); err != nil {
		tb.Fatal(err)
	}
}

var countersRE = regexp.MustCompile(`(?m)\[\d+:\d+\]|^#.*\n`)

// Traces returns all that a pod's network may leave: firewall rules, devices, allocations, cached results.
func (b *Bed) Traces(tb testing.TB) string {
	tb.Helper()
	s := Tool(tb, "iptables-save") + Tool(tb, "ip6tables-save") + Tool(tb, "nft", "-s", "list", "ruleset")
	s = countersRE.ReplaceAllString(s, "")
	devices, err := os.ReadDir("/proc/sys/net/ipv4/conf")
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range devices {
		s += "\ndevice " + d.Name()
	}
	for _, dir := range []string{b.Allocations(), filepath.Join(b.Dir, "data", "results")} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "last_reserved_ip") && e.Name() != "lock" {
				s += "\n" + dir + "/" + e.Name()
			}
		}
	}
	return s
}

// Settles waits until traces are as before: devices go a moment after their namespace.
func (b *Bed) Settles(tb testing.TB, before string) {
	tb.Helper()
	after := ""
	for end := time.Now().Add(testbed.Patience()); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if after = b.Traces(tb); after == before {
			return
		}
	}
	tb.Errorf("left behind:\n--- before\n%s\n--- after\n%s", before, after)
}

// Quick connects to a server from netns, and returns an error unless it answers within a moment.
func Quick(tb testing.TB, netns, addr string) error {
	tb.Helper()
	return InNet(tb, netns, func() error {
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

// Sh runs a shell command in netns; "" is the host's.
func Sh(t testing.TB, netns, command string) {
	t.Helper()
	if netns == "" {
		Tool(t, "sh", "-c", command)
		return
	}
	Tool(t, "nsenter", "--net="+netns, "sh", "-c", command)
}

// Main is the TestMain of a package with tests that use a Bed.
func Main(m *testing.M) { nettest.Main(m, becomeHost) }

// becomeHost sets a firewall policy like Docker's, and the bridge setting of a Kubernetes node.
func becomeHost() error {
	if out, err := exec.Command("iptables", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0)
	return nil
}
