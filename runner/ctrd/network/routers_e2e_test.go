//go:build e2e

package network_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/e2e/netbed"
	"monopod/e2e/testbed"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/link"
)

// advertisement is a router advertisement of a default route for half an hour, and of the prefix 2001:db8:666::/64, on the link and for
// addresses. The kernel adds the checksum.
func advertisement() []byte {
	prefix := make([]byte, 32)
	copy(prefix, []byte{3, 4, 64, 0xc0})
	binary.BigEndian.PutUint32(prefix[4:], 3600)
	binary.BigEndian.PutUint32(prefix[8:], 3600)
	copy(prefix[16:], net.ParseIP("2001:db8:666::"))
	return append([]byte{134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}, prefix...)
}

// noForwarding makes the host no router of IPv6, as with podCIDR of IPv4 only: a router heeds no others anyway.
const noForwarding = "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding"

// hasLinkLocal reports whether a pod has a link-local address that can be used. The kernel adds it asynchronously.
func hasLinkLocal(t *testing.T, p network.Pod) (yes bool) {
	t.Helper()
	err := netbed.InNet(t, p.NetNS, func() error {
		eth, err := netlink.LinkByName(link.Interface)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(eth, netlink.FAMILY_V6)
		yes = slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// advertise sends two router advertisements from a pod to all on its link.
func advertise(t *testing.T, p network.Pod) {
	t.Helper()
	err := netbed.InNet(t, p.NetNS, func() error {
		eth, err := netlink.LinkByName(link.Interface)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
			return err
		}
		to := &unix.SockaddrInet6{ZoneId: uint32(eth.Attrs().Index), Addr: [16]byte(net.IPv6linklocalallnodes)}
		return errors.Join(unix.Sendto(fd, advertisement(), 0, to), unix.Sendto(fd, advertisement(), 0, to))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// received returns how many router advertisements a device has received, heeded or not.
func received(t *testing.T, netns, device string) (n int) {
	t.Helper()
	err := netbed.InNet(t, netns, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/dev_snmp6/" + device)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "Icmp6InRouterAdvertisements" {
				_, err := fmt.Sscan(f[1], &n)
				return err
			}
		}
		return errors.New("no counter of router advertisements")
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// awaited waits for a condition.
func awaited(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(testbed.Patience()); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}

// advertised has a pod send router advertisements until a device has received two: the kernel has handled the first one then. What is sent
// before the link of the device works is lost.
func advertised(t *testing.T, p network.Pod, netns, device string) {
	t.Helper()
	awaited(t, "the pod has a link-local address", func() bool { return hasLinkLocal(t, p) })
	before := received(t, netns, device)
	awaited(t, "advertisements arrive at "+device, func() bool {
		advertise(t, p)
		return received(t, netns, device) >= before+2
	})
}

// believed returns what a namespace has learned from the pod.
func believed(t *testing.T, netns string) (out string) {
	t.Helper()
	err := netbed.InNet(t, netns, func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(nil, netlink.FAMILY_V6)
		for _, r := range routes {
			if text := r.String(); r.Protocol == unix.RTPROT_RA || strings.Contains(text, "2001:db8:666:") {
				out += text + "\n"
			}
		}
		for _, a := range addrs {
			if text := a.String(); strings.Contains(text, "2001:db8:666:") {
				out += text + "\n"
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// heed undoes what protects the host, as versions before did not have it, and has the pod advertise itself.
func heed(t *testing.T, b *netbed.Bed, p network.Pod) {
	t.Helper()
	bridge := b.Parts().Bridge.Name
	netbed.Sh(t, "", noForwarding)
	for _, device := range []string{bridge, link.HostName(p.SandboxID)} {
		netbed.Sh(t, "", "echo 1 > /proc/sys/net/ipv6/conf/"+device+"/accept_ra")
	}
	advertised(t, p, "", bridge)
}

// ignored fails unless bridge and host end ignore router advertisements.
func ignored(t *testing.T, b *netbed.Bed, p network.Pod) {
	t.Helper()
	for _, device := range []string{b.Parts().Bridge.Name, link.HostName(p.SandboxID)} {
		if link.HeedsRouters(device) {
			t.Errorf("%s heeds router advertisements", device)
		}
	}
}

// reported returns a check that damage was reported.
func (w *watched) reported(damage string) func() error {
	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if all := fmt.Sprintf("%+v", w.notices); !strings.Contains(all, damage) {
			return fmt.Errorf("reported %s", all)
		}
		return nil
	}
}

func TestAPodCannotBecomeTheRouterOfTheHost(t *testing.T) {
	b := netbed.New(t, "10.199.41.0/24").Start(t)
	bridge := b.Parts().Bridge.Name
	p, _ := b.Up(t, "attacker")
	other, _ := b.Up(t, "other")
	ignored(t, b, p)
	netbed.Sh(t, "", noForwarding)
	advertised(t, p, "", bridge)
	if got := believed(t, ""); got != "" {
		t.Errorf("the host believes the pod:\n%s", got)
	}
	advertised(t, p, other.NetNS, link.Interface)
	if got := believed(t, other.NetNS); got != "" {
		t.Errorf("another pod believes the pod:\n%s", got)
	}
}

func TestAnAttackedBridgeIsRepairedAtTheNextStart(t *testing.T) {
	b := netbed.New(t, "10.199.42.0/24").Start(t)
	bridge := b.Parts().Bridge.Name
	p, _ := b.Up(t, "attacker")
	heed(t, b, p)
	awaited(t, "the host believes the pod", func() bool { return strings.Contains(believed(t, ""), "2001:db8:666:") })
	again := netbed.In(t, b.Dir, b.Config.PodCIDR)
	if err := again.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := again.Parts().Bridge.Name; got != bridge {
		t.Errorf("the bridge is now %s, before %s", got, bridge)
	}
	ignored(t, b, p)
	if got := believed(t, ""); got != "" {
		t.Errorf("the host still believes the pod:\n%s", got)
	}
	advertised(t, p, "", bridge)
	if got := believed(t, ""); got != "" {
		t.Errorf("the host believes the pod again:\n%s", got)
	}
}

func TestAnAttackedBridgeIsRepairedWhileMonopodRuns(t *testing.T) {
	b := netbed.New(t, "10.199.43.0/24").Start(t)
	w := keepBed(t, b)
	p, _ := b.Up(t, "attacker")
	netbed.Sh(t, "", "ip link set "+b.Parts().Bridge.Name+" down") // once this is reported, later damage is noticed only by its event
	w.works(t, w.reported("it was down"))
	heed(t, b, p)
	w.works(t, w.reported("heeded router advertisements"), func() error {
		if got := believed(t, ""); got != "" {
			return errors.New("the host believes the pod:\n" + got)
		}
		return nil
	})
	ignored(t, b, p)
}

// TestSettingsOfPortsAreRepaired: the kernel reports them like harmless changes, so only complete checks see them.
func TestSettingsOfPortsAreRepaired(t *testing.T) {
	b := netbed.New(t, "10.199.44.0/24").Start(t)
	p, _ := b.Up(t, "pod")
	host := link.HostName(p.SandboxID)
	for _, damage := range []string{"hairpin off", "isolated on"} {
		netbed.Sh(t, "", "bridge link set dev "+host+" "+damage)
		if err := b.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		ports, err := link.Ports()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, port := range ports {
			found = found || port.Name == host
			if port.Name == host && (port.NoHairpin || port.Isolated) {
				t.Errorf("%s: after the repair %+v", damage, port)
			}
		}
		if !found {
			t.Errorf("%s is missing", host)
		}
	}
}
