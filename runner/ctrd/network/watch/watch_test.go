package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netlink makes a message of a header, and attributes.
func netlink(kind uint16, header []byte, attrs ...[]byte) []byte {
	body := slices.Concat(append([][]byte{header}, attrs...)...)
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(append(b, make([]byte, 10)...), body...)
}

func attr(kind uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	return append(b, make([]byte, -len(b)&3)...)
}

func word(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func TestMessagesBecomeEvents(t *testing.T) {
	up := slices.Concat(make([]byte, 4), word(7), word(unix.IFF_UP|unix.IFF_RUNNING), make([]byte, 4))
	down := slices.Concat(make([]byte, 4), word(7), word(0), make([]byte, 4))
	rule := func(kind uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | kind }
	tests := []struct {
		name  string
		parse func(message, int) (Event, bool)
		text  []byte
		want  []Event
	}{
		{"a port", links, netlink(unix.RTM_NEWLINK, up, attr(unix.IFLA_IFNAME, []byte("x\x00")), attr(unix.IFLA_MASTER, word(3))), []Event{{Kind: Link, Index: 7, Up: true, Master: 3, NSID: Host}}},
		{"a port that left", links, netlink(unix.RTM_NEWLINK, up), []Event{{Kind: Link, Index: 7, Up: true, NSID: Host}}},
		{"two in one read", links, append(netlink(unix.RTM_NEWLINK, down), netlink(unix.RTM_DELLINK, up)...), []Event{
			{Kind: Link, Index: 7, NSID: Host}, {Kind: Link, Index: 7, Up: true, Deleted: true, NSID: Host},
		}},
		{"an address", links, netlink(unix.RTM_DELADDR, append(make([]byte, 4), word(9)...)), []Event{{Kind: Addr, Deleted: true, Index: 9, NSID: Host}}},
		{"a route", links, netlink(unix.RTM_DELROUTE, make([]byte, unix.SizeofRtMsg), attr(unix.RTA_OIF, word(9))), []Event{{Kind: Route, Deleted: true, Index: 9, NSID: Host}}},
		{"a route that a router advertised", links, netlink(unix.RTM_NEWROUTE, []byte{0, 0, 0, 0, 0, unix.RTPROT_RA, 0, 0, 0, 0, 0, 0}, attr(unix.RTA_OIF, word(9))), []Event{{Kind: Route, Index: 9, NSID: Host}}},
		{"another new route", links, netlink(unix.RTM_NEWROUTE, []byte{0, 0, 0, 0, 0, unix.RTPROT_KERNEL, 0, 0, 0, 0, 0, 0}, attr(unix.RTA_OIF, word(9))), nil},
		{"a queue", links, netlink(unix.RTM_DELQDISC, append(make([]byte, 4), word(9)...), make([]byte, 12)), []Event{{Kind: Queue, Deleted: true, Index: 9, NSID: Host}}},
		{"a queue that came", links, netlink(unix.RTM_NEWQDISC, append(make([]byte, 4), word(9)...), make([]byte, 12)), nil},
		{"what came is no damage", links, netlink(unix.RTM_NEWADDR, append(make([]byte, 4), word(9)...)), nil},
		{"a rule", rules, netlink(rule(unix.NFT_MSG_DELRULE), make([]byte, 4), attr(1, []byte("filter\x00")), attr(2, []byte("FORWARD\x00"))), []Event{{Kind: Rules, Deleted: true, Table: "filter", NSID: Host}}},
		{"a new rule", rules, netlink(rule(unix.NFT_MSG_NEWRULE), make([]byte, 4), attr(1, []byte("filter\x00"))), nil},
		{"another subsystem", rules, netlink(unix.NFT_MSG_DELRULE, make([]byte, 4), attr(1, []byte("filter\x00"))), nil},
	}
	for _, tt := range tests {
		var got []Event
		for m := range messages(tt.text) {
			if e, ok := tt.parse(m, Host); ok {
				got = append(got, e)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(netlink(unix.RTM_NEWLINK, make([]byte, unix.SizeofIfInfomsg), attr(unix.IFLA_MASTER, word(3))))
	f.Add(netlink(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELRULE, make([]byte, 4), attr(1, []byte("filter\x00"))))
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(_ *testing.T, b []byte) {
		for m := range messages(b) {
			links(m, 0)
			rules(m, 0)
		}
	})
}

func TestDamagedMessagesAreNoEvents(t *testing.T) {
	link := make([]byte, unix.SizeofIfInfomsg)
	for name, text := range map[string][]byte{
		"nothing":                   {},
		"half of a header":          netlink(unix.RTM_DELLINK, link)[:10],
		"less than its length says": netlink(unix.RTM_DELLINK, link)[:20],
		"a length below the header": append([]byte{8, 0, 0, 0}, make([]byte, 40)...),
		"a link without its device": netlink(unix.RTM_DELLINK, link[:8]),
		"an address without one":    netlink(unix.RTM_DELADDR, make([]byte, 4)),
		"a route without its table": netlink(unix.RTM_DELROUTE, make([]byte, 4)),
		"a new one without a table": netlink(unix.RTM_NEWROUTE, make([]byte, 4)),
		"a queue without its link":  netlink(unix.RTM_DELQDISC, make([]byte, 4)),
		"a rule without a header":   netlink(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELRULE, nil),
	} {
		for m := range messages(text) {
			if e, ok := links(m, Host); ok {
				t.Errorf("%s: %+v", name, e)
			}
			if e, ok := rules(m, Host); ok {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	// What follows a damaged attribute is not read, and what came before counts.
	text := netlink(unix.RTM_NEWLINK, link, attr(unix.IFLA_MASTER, word(3)), []byte{1, 0, 0, 0}, attr(unix.IFLA_MASTER, word(4)))
	for m := range messages(text) {
		if e, ok := links(m, Host); !ok || e.Master != 3 {
			t.Errorf("%+v, %t", e, ok)
		}
	}
}

func TestTheNamespaceOfAMessage(t *testing.T) {
	control := func(level, kind int32, data []byte) []byte {
		b := make([]byte, unix.CmsgSpace(len(data)))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		h.Level, h.Type = level, kind
		h.SetLen(unix.CmsgLen(len(data)))
		copy(b[unix.CmsgLen(0):], data)
		return b
	}
	for name, tt := range map[string]struct {
		control []byte
		want    int
	}{
		"of the host":        {nil, Host},
		"of a pod":           {control(unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, word(7)), 7},
		"the first one":      {control(unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, word(0)), 0},
		"another option":     {control(unix.SOL_NETLINK, unix.NETLINK_PKTINFO, word(7)), Host},
		"another protocol":   {control(unix.SOL_SOCKET, unix.NETLINK_LISTEN_ALL_NSID, word(7)), Host},
		"a damaged message":  {[]byte{1, 2, 3}, Host},
		"without its number": {control(unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, nil), Host},
	} {
		if got := origin(tt.control); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestEventsAreReportedUntilTheSocketIsClosed(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(fds[0]), "kernel"), os.NewFile(uintptr(fds[1]), "netlink")
	defer in.Close()
	events, ended := make(chan Event, 10), make(chan error, 1)
	go func() { ended <- follow(out, func(e Event) { events <- e }, links) }()
	address := netlink(unix.RTM_DELADDR, append(make([]byte, 4), word(9)...))
	for range 2 {
		if _, err := in.Write(append(netlink(unix.RTM_NEWADDR, make([]byte, 8)), address...)); err != nil {
			t.Fatal(err)
		}
		if e := <-events; e != (Event{Kind: Addr, Deleted: true, Index: 9, NSID: Host}) {
			t.Errorf("%+v", e)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestWatchingEndsWithTheContext(t *testing.T) {
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx, func(Event) {}); err != nil {
		t.Error(err)
	}
}
