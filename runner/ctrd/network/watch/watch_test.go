package watch

import (
	"encoding/binary"
	"slices"
	"testing"

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
