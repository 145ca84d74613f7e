// Package watch reports changes of links, addresses, routes, queues and nftables rules by the kernel, also in those network namespaces of pods
// that are connected to the host.
//
// It owns two netlink sockets while it runs. It must not know what a change means.
package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Kind is the kind of an event.
type Kind int

// The kinds of events.
const (
	// Lost reports dropped events: anything may have changed.
	Lost Kind = iota
	Link
	Addr
	// Route reports a deleted route, or a new one from a router advertisement.
	Route
	Queue
	Rules
)

// Host is the NSID of the host's own namespace.
const Host = -1

// Event is a change.
type Event struct {
	Kind Kind
	// Deleted reports whether something was removed, or a port left its bridge.
	Deleted bool
	// NSID is the id of the namespace in the host's namespace, or Host.
	NSID int
	// Index is the index of the device of a link, an address or a queue, or the outgoing device of a route.
	Index int
	// Up and Master are set for links.
	Up     bool
	Master int
	// Table is set for Rules.
	Table string
}

// bufferSize is the size of the receive buffers in bytes.
const bufferSize = 1 << 20

// Watcher has open sockets, so that later events are not missed.
type Watcher struct {
	route *os.File // nil if only rules are watched
	rules *os.File // nil: the kernel has no nftables
}

// Open subscribes.
func Open() (*Watcher, error) {
	route, err := listen(unix.NETLINK_ROUTE, "netlink", unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_TC)
	if err != nil {
		return nil, fmt.Errorf("watch network: %w", err)
	}
	rules, err := listen(unix.NETLINK_NETFILTER, "nftables", unix.NFNLGRP_NFTABLES)
	if err != nil {
		rules = nil
	}
	return &Watcher{route, rules}, nil
}

// OpenRules subscribes to changes of nftables rules only.
func OpenRules() (*Watcher, error) {
	rules, err := listen(unix.NETLINK_NETFILTER, "nftables", unix.NFNLGRP_NFTABLES)
	if err != nil {
		return nil, fmt.Errorf("watch nftables: %w", err)
	}
	return &Watcher{rules: rules}, nil
}

func listen(protocol int, name string, groups ...int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if protocol == unix.NETLINK_ROUTE {
		// Subscribe to the namespaces of pods. If that fails, only events in the host are reported.
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// Close ends a Run in progress.
func (w *Watcher) Close() error {
	var errs []error
	for _, f := range []*os.File{w.route, w.rules} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Run calls report with every event until ctx ends. report must not block, and may be called concurrently.
func (w *Watcher) Run(ctx context.Context, report func(Event)) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer stop()
	if w.route != nil {
		g.Go(func() error { return follow(w.route, report, links) })
	}
	if w.rules != nil {
		g.Go(func() error { return follow(w.rules, report, rules) })
	}
	err := g.Wait()
	if ctx.Err() != nil && errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// follow reads a socket.
func follow(f *os.File, report func(Event), parse func(message, int) (Event, bool)) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	b, control := make([]byte, 64<<10), make([]byte, 64)
	for {
		var n, oobn int
		var recvErr error
		err := raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), b, control, 0)
			return !errors.Is(recvErr, unix.EAGAIN) && !errors.Is(recvErr, unix.EINTR)
		})
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", f.Name(), os.ErrClosed)
		case errors.Is(recvErr, unix.ENOBUFS):
			report(Event{Kind: Lost})
			continue
		case recvErr != nil:
			return fmt.Errorf("watch %s: %w", f.Name(), recvErr)
		}
		nsid := origin(control[:oobn])
		for m := range messages(b[:n]) {
			if e, ok := parse(m, nsid); ok {
				report(e)
			}
		}
	}
}

// origin returns the namespace id of a message.
func origin(control []byte) int {
	all, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return Host
	}
	for _, c := range all {
		if c.Header.Level == unix.SOL_NETLINK && c.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(c.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(c.Data)))
		}
	}
	return Host
}

// message is one netlink message.
type message struct {
	kind uint16
	data []byte
}

// messages splits the data of a read. It stops at a damaged message.
func messages(b []byte) func(func(message) bool) {
	return func(yield func(message) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return
			}
			if !yield(message{binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:size]}) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

func align(n int) int { return (n + 3) &^ 3 }

// attributes splits a message's attributes.
func attributes(b []byte, each func(kind uint16, data []byte)) {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:size])
		b = b[min(align(size), len(b)):]
	}
}

// links parses a message of rtnetlink.
func links(m message, nsid int) (Event, bool) {
	e := Event{NSID: nsid}
	switch m.kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.data) < unix.SizeofIfInfomsg {
			return e, false
		}
		e.Kind, e.Deleted = Link, m.kind == unix.RTM_DELLINK
		e.Index = int(int32(binary.NativeEndian.Uint32(m.data[4:])))
		e.Up = binary.NativeEndian.Uint32(m.data[8:])&uint32(net.FlagUp) != 0
		attributes(m.data[unix.SizeofIfInfomsg:], func(kind uint16, data []byte) {
			if kind == unix.IFLA_MASTER && len(data) >= 4 {
				e.Master = int(binary.NativeEndian.Uint32(data))
			}
		})
	case unix.RTM_DELADDR:
		if len(m.data) < unix.SizeofIfAddrmsg {
			return e, false
		}
		e.Kind, e.Deleted = Addr, true
		e.Index = int(binary.NativeEndian.Uint32(m.data[4:]))
	case unix.RTM_DELQDISC:
		if len(m.data) < 8 { // family and padding, then the device
			return e, false
		}
		e.Kind, e.Deleted = Queue, true
		e.Index = int(int32(binary.NativeEndian.Uint32(m.data[4:])))
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		const protocol = 5
		added := m.kind == unix.RTM_NEWROUTE
		if len(m.data) < unix.SizeofRtMsg || added && m.data[protocol] != unix.RTPROT_RA {
			return e, false
		}
		e.Kind, e.Deleted = Route, !added
		attributes(m.data[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
			if kind == unix.RTA_OIF && len(data) >= 4 {
				e.Index = int(binary.NativeEndian.Uint32(data))
			}
		})
	default:
		return e, false
	}
	return e, true
}

// rules parses a message of nftables. Only removals are reported.
func rules(m message, _ int) (Event, bool) {
	e := Event{Kind: Rules, NSID: Host, Deleted: true}
	if m.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.data) < 4 {
		return e, false
	}
	switch m.kind & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM:
	default:
		return e, false
	}
	attributes(m.data[4:], func(kind uint16, data []byte) {
		if kind == 1 && len(data) > 0 && e.Table == "" { // the table's name comes first in all of them
			e.Table = string(data[:len(data)-1])
		}
	})
	return e, true
}
