package link

import (
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// State is the observed state of a pod's end.
type State struct {
	// Gone reports whether the namespace does not exist, so that there is no pod to connect.
	Gone bool
	// Exists is false if the namespace has no eth0. The other fields are unset then.
	Exists bool
	// Veth is false if eth0 is another kind of device.
	Veth bool
	Up   bool
	// Host is the index of the host end, NSID the id of the pod's namespace in the host's.
	Host, NSID int
	Addrs      []netip.Prefix
	// Default4 and Default6 report whether any default route exists.
	Default4, Default6 bool
}

// Inspect returns the state in a namespace.
func Inspect(path string) (State, error) {
	s := State{NSID: -1}
	ns, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return State{Gone: true}, nil
	}
	if err != nil {
		return s, err
	}
	defer ns.Close()
	if id, err := netlink.GetNetNsIdByFd(int(ns.Fd())); err == nil {
		s.NSID = id
	}
	err = In(path, func() error { return s.read() })
	if errors.Is(err, unix.EINVAL) {
		return State{Gone: true}, nil
	}
	return s, err
}

func (s *State) read() error {
	eth, err := netlink.LinkByName(Interface)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	s.Exists, s.Host = true, eth.Attrs().ParentIndex
	s.Veth = eth.Type() == "veth"
	s.Up = eth.Attrs().Flags&net.FlagUp != 0
	addrs, err := Retry(func() ([]netlink.Addr, error) { return netlink.AddrList(eth, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if p, ok := Prefix(a.IPNet); ok {
			s.Addrs = append(s.Addrs, p)
		}
	}
	for family, found := range map[int]*bool{netlink.FAMILY_V4: &s.Default4, netlink.FAMILY_V6: &s.Default6} {
		routes, err := Retry(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return err
		}
		for _, r := range routes {
			p, ok := Prefix(r.Dst)
			*found = *found || !ok || p.Bits() == 0
		}
	}
	return nil
}

// Prefix converts an address or a destination. ok is false without one.
func Prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if bits == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, ones), true
}

// Retry repeats a netlink dump that was interrupted by a change.
func Retry[T any](list func() ([]T, error)) ([]T, error) {
	for range 10 {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}
