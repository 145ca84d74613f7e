//go:build e2e

package services_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"monopod/e2e/testbed"
)

// echo returns a connection over loopback, from the given address, to something at another one that returns what it is sent: what a rule that
// refuses an address sends to that address itself is refused, too.
func echo(t *testing.T, from string) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	local, err := net.ResolveTCPAddr("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{LocalAddr: local}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetLinger(0); err != nil { // the port is free at once
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// says sends something, and waits for it to come back.
func says(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(testbed.Patience())); err != nil {
		return err
	}
	b := []byte("hello")
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b)
	return err
}

// TestACheckOfTheKernelResetsNoConnection is a regression test: each start of monopod reset connections to 127.0.0.1, since the table with which it
// asked the kernel what it can do was there for some milliseconds.
func TestACheckOfTheKernelResetsNoConnection(t *testing.T) {
	c := echo(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	talked := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := says(c); err != nil {
				talked <- err
				return
			}
		}
		talked <- nil
	}()
	r := start(t)
	for range 50 {
		if err := r.Supported(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-talked; err != nil {
		t.Error(err)
	}
}

// TestAConnectionFromThePortOfAServiceContinues: what is sent to a client has the port of the client, which may be a node port without endpoints.
func TestAConnectionFromThePortOfAServiceContinues(t *testing.T) {
	c := echo(t, "127.0.0.1:30080")
	r := start(t)
	apply(t, r, table(port("tcp", "0.0.0.0", 30080)))
	if err := says(c); err != nil {
		t.Error(err)
	}
}
