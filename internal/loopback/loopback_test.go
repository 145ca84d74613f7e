package loopback_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"monopod/internal/loopback"
)

// refused reports whether connections to an address are refused at once.
func refused(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s: %v", address, err)
	}
}

func TestWhatIsClosedIsRefusedAndComesAgain(t *testing.T) {
	l := loopback.Listen(t)
	address := l.Addr().String()
	for range 3 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		refused(t, address)
		l = loopback.Again(t, address)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAPortThatNobodyListensOnIsNobodyElses(t *testing.T) {
	port := loopback.Closed(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	refused(t, address)
	if l, err := net.Listen("tcp", address); err == nil {
		_ = l.Close()
		t.Error("another one got it")
	}
}
