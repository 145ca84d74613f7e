package httpget

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is the part of a connection that probes need.
type Conn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// linger sets SO_LINGER to one second, which also limits how long the kernel remembers the connection: many probes would
// otherwise use up the ports.
func linger(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
}

// Dial connects to an address. The deadline applies to the connection as well; zero: none. For IP addresses, which nearly all are, it avoids
// net.Dialer, a third of whose cost goes into options and names that no probe needs.
func Dial(ctx context.Context, address string, deadline time.Time) (Conn, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || a.Addr().Zone() != "" {
		return dialName(ctx, address, deadline)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := dialIP(ctx, a, deadline)
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
func dialIP(ctx context.Context, a netip.AddrPort, deadline time.Time) (*os.File, error) {
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
		err = connected(ctx, f, to, deadline)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// connected waits for the end of a connect in progress, or of ctx.
func connected(ctx context.Context, f *os.File, to unix.Sockaddr, deadline time.Time) error {
	if err := f.SetDeadline(deadline); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })()
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

// DialTLS connects with TLS. It does not verify certificates: a probe checks whether the program answers, and most certificates are not
// valid for the address that is probed. The error is http.ErrSchemeMismatch if the server answers without TLS.
func DialTLS(ctx context.Context, address string, deadline time.Time, protocols ...string) (Conn, error) {
	c, err := dialName(ctx, address, deadline)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: host, NextProtos: protocols}) //nolint:gosec // see above
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		if e, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(e.RecordHeader[:]) == "HTTP/" {
			err = fmt.Errorf("%w: %w", http.ErrSchemeMismatch, err)
		}
		return nil, err
	}
	return secure, nil
}
