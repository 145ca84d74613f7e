package link

import (
	"net"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Port is a device of the host.
type Port struct {
	Index  int
	Name   string
	Up     bool
	Master int
	// NoHairpin and Isolated are set for a port of a bridge without hairpin mode, which cannot reach itself through a Service, or isolated from
	// other ports.
	NoHairpin, Isolated bool
	// HeedsRouters is set for the host end of a pod that heeds router advertisements.
	HeedsRouters bool
}

// Ports returns the devices of the host by index.
func Ports() (map[int]Port, error) {
	links, err := Retry(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	modes, err := Retry(portModes)
	if err != nil {
		return nil, err
	}
	out := make(map[int]Port, len(links))
	for _, l := range links {
		a := l.Attrs()
		out[a.Index] = Port{
			Index: a.Index, Name: a.Name, Up: a.Flags&net.FlagUp != 0, Master: a.MasterIndex,
			HeedsRouters: strings.HasPrefix(a.Name, HostPrefix) && HeedsRouters(a.Name),
		}
	}
	for _, m := range modes {
		if p, ok := out[m.index]; ok {
			p.NoHairpin, p.Isolated = !m.hairpin, m.isolated
			out[m.index] = p
		}
	}
	return out, nil
}

// portMode has the settings of a port of a bridge.
type portMode struct {
	index             int
	hairpin, isolated bool
}

// portModes returns the settings of all ports of bridges. netlink.LinkGetProtinfo would list them once for each.
func portModes() ([]portMode, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, err
	}
	var out []portMode
	for _, m := range msgs {
		head := nl.DeserializeIfInfomsg(m)
		attrs, err := nl.ParseRouteAttr(m[head.Len():])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			if a.Attr.Type != unix.IFLA_PROTINFO|unix.NLA_F_NESTED {
				continue
			}
			settings, err := nl.ParseRouteAttr(a.Value)
			if err != nil {
				return nil, err
			}
			out = append(out, modeOf(int(head.Index), settings))
		}
	}
	return out, nil
}

func modeOf(index int, settings []syscall.NetlinkRouteAttr) portMode {
	m := portMode{index: index}
	for _, s := range settings {
		on := len(s.Value) > 0 && s.Value[0] != 0
		switch s.Attr.Type {
		case nl.IFLA_BRPORT_MODE:
			m.hairpin = on
		case nl.IFLA_BRPORT_ISOLATED:
			m.isolated = on
		}
	}
	return m
}
