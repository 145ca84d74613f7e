package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is the part of a connection that probes need.
type conn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// linger sets SO_LINGER to one second, which also limits how long the kernel remembers the connection: many probes would
// otherwise use up the ports.
func linger(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
}

// dial connects to an address. For IP addresses, which nearly all are, it avoids net.Dialer, a third of whose cost goes into options and
// names that no probe needs.
func dial(ctx context.Context, address string, deadline time.Time) (conn, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || a.Addr().Zone() != "" {
		return dialName(ctx, address, deadline)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := dialIP(a, deadline)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(a), Err: err}
	}
	return c, nil
}

// dialName connects with the resolver.
func dialName(ctx context.Context, address string, deadline time.Time) (net.Conn, error) {
	d := net.Dialer{
		Deadline:  deadline,
		KeepAlive: -1,
		Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { linger(int(fd)) })
		},
	}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(deadline)
}

// dialIP connects a socket of its own, which the poller of the Go runtime then waits for.
func dialIP(a netip.AddrPort, deadline time.Time) (*os.File, error) {
	ip, family := a.Addr().Unmap(), unix.AF_INET
	var to unix.Sockaddr
	if ip.Is4() {
		to = &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	} else {
		family = unix.AF_INET6
		to = &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	linger(fd)
	err = unix.Connect(fd, to)
	if err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EINTR) {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	f := os.NewFile(uintptr(fd), "tcp")
	if f == nil {
		return nil, fmt.Errorf("bad descriptor %d", fd)
	}
	if err == nil {
		err = f.SetDeadline(deadline)
	} else {
		err = connected(f, to, deadline)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// connected waits for the end of a connect in progress.
func connected(f *os.File, to unix.Sockaddr, deadline time.Time) error {
	if err := f.SetDeadline(deadline); err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	// Check before the first wait: if the connect has already succeeded, the poller does not wake up.
	err = raw.Write(func(fd uintptr) bool {
		result = unix.Connect(int(fd), to)
		return result != unix.EALREADY && result != unix.EINTR
	})
	switch {
	case err != nil:
		return os.ErrDeadlineExceeded
	case result != nil && result != unix.EISCONN:
		return os.NewSyscallError("connect", result)
	}
	return nil
}
