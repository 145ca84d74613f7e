//go:build e2e

package network

import (
	"context"
	"errors"
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

	"monopod/e2e/testbed"
	"monopod/runner/ctrd/linuxns"
)

const uplinkAddr, outsideAddr = "198.51.100.2", "198.51.100.1"

// tool runs a command of the host and returns its output.
func tool(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// inNet runs fn with the calling thread in a network namespace; "" is the host's.
func inNet(tb testing.TB, netns string, fn func() error) error {
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

// serve answers every connection with the caller's address, until stop is called: its sockets keep the namespace.
func serve(tb testing.TB, netns, addr string) (stop func()) {
	tb.Helper()
	var l net.Listener
	var u net.PacketConn
	err := inNet(tb, netns, func() (err error) {
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

// ask connects from netns and returns what the server says.
func ask(tb testing.TB, netns, network, addr string) (string, error) {
	tb.Helper()
	var answer string
	err := inNet(tb, netns, func() error {
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

func wantAnswer(tb testing.TB, netns, network, addr, want string) {
	tb.Helper()
	got, err := ask(tb, netns, network, addr)
	if err != nil || (want != "*" && got != want) {
		tb.Errorf("%s to %s %s: the server saw %q, want %q; %v", netns, network, addr, got, want, err)
	}
}

// outside makes a machine behind the host's uplink which has no route to the pods.
func outside(tb testing.TB) (netns string) {
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
	tool(tb, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	tool(tb, "ip", "addr", "add", uplinkAddr+"/24", "dev", "up0")
	tool(tb, "ip", "-6", "addr", "add", "2001:db8::2/64", "dev", "up0", "nodad")
	tool(tb, "ip", "link", "set", "up0", "up")
	tool(tb, "nsenter", "--net="+netns, "true")
	tool(tb, "sh", "-c", "exec 3<"+netns+"; ip link set up1 netns /proc/self/fd/3")
	tool(tb, "nsenter", "--net="+netns, "ip", "addr", "add", outsideAddr+"/24", "dev", "up1")
	tool(tb, "nsenter", "--net="+netns, "ip", "-6", "addr", "add", "2001:db8::1/64", "dev", "up1", "nodad")
	tool(tb, "nsenter", "--net="+netns, "ip", "link", "set", "up1", "up")
	tool(tb, "ip", "route", "add", "default", "via", outsideAddr)
	tool(tb, "ip", "-6", "route", "add", "default", "via", "2001:db8::1")
	serve(tb, netns, ":80")
	return netns
}

// bed is one monopod's network in a directory of its own.
type bed struct {
	*Network
	dir string
	log *strings.Builder
}

func newBed(tb testing.TB, cidr string) *bed {
	tb.Helper()
	return bedIn(tb, tb.TempDir(), cidr)
}

func bedIn(tb testing.TB, dir, cidr string) *bed {
	tb.Helper()
	bins, err := filepath.Abs("../../../bin/cni")
	if err != nil {
		tb.Fatal(err)
	}
	b := &bed{dir: dir, log: &strings.Builder{}}
	b.Network = New(Config{
		ConfDir: filepath.Join(dir, "net.d"), OwnConfDir: filepath.Join(dir, "own"), BinDirs: []string{bins},
		DataDir: filepath.Join(dir, "data"), PodCIDR: cidr, Log: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	})
	return b
}

func (b *bed) init(tb testing.TB) *bed {
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

// pod pins a network namespace for a pod that is not set up yet.
func (b *bed) pod(tb testing.TB, id string, ports ...PortMapping) Pod {
	tb.Helper()
	dir := filepath.Join(b.dir, "ns", id)
	if err := linuxns.Pin(dir, linuxns.Set{Net: true}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := linuxns.Unpin(dir); err != nil {
			tb.Error(err)
		}
	})
	return Pod{SandboxID: id, NetNS: filepath.Join(dir, "net"), Namespace: "default", Name: "p-" + id, UID: "u-" + id, PortMappings: ports}
}

// up makes a pod with network and returns its first address.
func (b *bed) up(tb testing.TB, id string, ports ...PortMapping) (Pod, string) {
	tb.Helper()
	p := b.pod(tb, id, ports...)
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

// unpin removes the namespace of a pod that was torn down, and with it its link.
func (b *bed) unpin(tb testing.TB, p Pod) {
	tb.Helper()
	if err := linuxns.Unpin(filepath.Dir(p.NetNS)); err != nil {
		tb.Fatal(err)
	}
}

var countersRE = regexp.MustCompile(`(?m)\[\d+:\d+\]|^#.*\n`)

// traces is all that a pod's network may leave: firewall rules, devices, allocations, cached results.
func (b *bed) traces(tb testing.TB) string {
	tb.Helper()
	s := tool(tb, "iptables-save") + tool(tb, "ip6tables-save") + tool(tb, "nft", "-s", "list", "ruleset")
	s = countersRE.ReplaceAllString(s, "")
	devices, err := os.ReadDir("/proc/sys/net/ipv4/conf")
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range devices {
		s += "\ndevice " + d.Name()
	}
	for _, dir := range []string{filepath.Join("networks", ownNetwork), "results"} {
		entries, _ := os.ReadDir(filepath.Join(b.dir, "data", dir))
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "last_reserved_ip") && e.Name() != "lock" {
				s += "\n" + dir + "/" + e.Name()
			}
		}
	}
	return s
}

// settles waits until traces are as before: devices go a moment after their namespace.
func (b *bed) settles(tb testing.TB, before string) {
	tb.Helper()
	after := ""
	for end := time.Now().Add(testbed.Patience()); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if after = b.traces(tb); after == before {
			return
		}
	}
	tb.Errorf("left behind:\n--- before\n%s\n--- after\n%s", before, after)
}
