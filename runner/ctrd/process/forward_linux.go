package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod/manifests"
)

// dialTimeout bounds a connect on the loopback interface of a pod: a listener with a full queue does not answer.
const dialTimeout = 30 * time.Second

// Dial connects to a TCP port on the loopback interface of a pod, by IPv4, else by IPv6.
func (r *Processes) Dial(ctx context.Context, key manifests.Key, port int) (net.Conn, error) {
	rec := r.Index.Sandbox(key)
	if rec == nil {
		return nil, fmt.Errorf("pod %s is not running", key)
	}
	netns := ""
	if !rec.Pod.Object.Spec.HostNetwork {
		netns = filepath.Join(r.Dirs.NsDir(rec.ID), "net")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var errs []error
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		c, err := dialIn(ctx, netns, netip.AddrPortFrom(ip, uint16(port)))
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", net.JoinHostPort(ip.String(), strconv.Itoa(port)), err))
	}
	return nil, fmt.Errorf("nothing answers: %w", errors.Join(errs...))
}

// dialIn connects from within a network namespace; empty is the agent's own.
func dialIn(ctx context.Context, netns string, to netip.AddrPort) (net.Conn, error) {
	fd, err := socketIn(netns, to.Addr().Is6())
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "tcp")
	defer f.Close() // net.FileConn duplicates it
	if err := connect(ctx, f, to); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// socketIn creates a socket, which belongs forever to the network namespace of the thread that creates it.
func socketIn(netns string, six bool) (fd int, err error) {
	family := unix.AF_INET
	if six {
		family = unix.AF_INET6
	}
	socket := func() (int, error) {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return fd, os.NewSyscallError("socket", err)
	}
	if netns == "" {
		return socket()
	}
	there, err := os.Open(netns)
	if err != nil {
		return -1, fmt.Errorf("network of the pod: %w", err)
	}
	defer there.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var here *os.File
		if here, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			runtime.UnlockOSThread()
			return
		}
		defer here.Close()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err == nil {
			fd, err = socket()
		}
		// If the thread cannot switch back, it ends with this goroutine.
		if unix.Setns(int(here.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return fd, err
}

// connect connects, and gives up when ctx ends.
func connect(ctx context.Context, f *os.File, to netip.AddrPort) error {
	var addr unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		addr = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	err = raw.Write(func(fd uintptr) bool {
		// The first call starts connecting, the following ones poll.
		result = unix.Connect(int(fd), addr)
		return !errors.Is(result, unix.EINPROGRESS) && !errors.Is(result, unix.EALREADY) && !errors.Is(result, unix.EINTR)
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case result != nil && !errors.Is(result, syscall.EISCONN):
		return os.NewSyscallError("connect", result)
	}
	return nil
}
