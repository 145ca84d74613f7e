package secure

import (
	"context"
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenEarly listens on an address that need not be assigned to an interface yet.
func listenEarly(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
		var err error
		set := func(fd uintptr) {
			if network == "tcp6" {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
				return
			}
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		}
		return errors.Join(c.Control(set), err)
	}}
	return lc.Listen(ctx, "tcp", address)
}
