// Package loopback is test support: it returns addresses and ports that nothing else on the machine uses. It must be imported by tests only.
//
// A free port of 127.0.0.1 may be taken by a connection or a server of another test at once. Other addresses of 127.0.0.0/8 are unused, so a
// port there stays free until its test uses it again.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
)

// Address returns a different address of 127.0.0.0/8 at each call.
func Address() string {
	return fmt.Sprintf("127.%d.%d.%d", 16+rand.IntN(200), rand.IntN(256), 1+rand.IntN(254))
}

// Listen listens on a TCP port of an address of its own. After a close, connections are refused, and Again works.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	return Again(tb, net.JoinHostPort(Address(), "0"))
}

// Again listens on the address of an earlier listener.
func Again(tb testing.TB, address string) net.Listener {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// Closed returns a TCP port of 127.0.0.1 that refuses connections until the test ends: it is bound, but not listening.
func Closed(tb testing.TB) int {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	return at.(*syscall.SockaddrInet4).Port
}
