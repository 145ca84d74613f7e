//go:build e2e

package bandwidth_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network/bandwidth"
)

// sink takes connections on port 99 of a namespace and reads all that comes.
func sink(tb testing.TB, netns string) {
	tb.Helper()
	var l net.Listener
	err := netbed.InNet(tb, netns, func() (err error) {
		l, err = net.Listen("tcp", ":99")
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c)
			_, _ = c.Write([]byte("!"))
			_ = c.Close()
		}
	}()
}

// send sends bytes from netns to a sink and returns at how many bits per second they arrived.
func send(tb testing.TB, netns, ip string, size int) float64 {
	tb.Helper()
	var took time.Duration
	err := netbed.InNet(tb, netns, func() error {
		c, err := net.Dial("tcp", ip+":99")
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		start := time.Now()
		_, err = c.Write(make([]byte, size))
		err = errors.Join(err, c.(*net.TCPConn).CloseWrite())
		_, got := io.ReadFull(c, make([]byte, 1))
		took = time.Since(start)
		return errors.Join(err, got)
	})
	if err != nil {
		tb.Fatal(err)
	}
	return float64(8*size) / took.Seconds()
}

func TestBandwidthIsLimitedEachWay(t *testing.T) {
	b := netbed.New(t, "10.199.20.0/24").Start(t)
	free, freeIP := b.Up(t, "free")
	slow := b.Pod(t, "slow")
	slow.Bandwidth = bandwidth.Limits{Ingress: 8_000_000, Egress: 16_000_000}
	t.Cleanup(func() {
		if err := b.Teardown(context.Background(), slow); err != nil {
			t.Error(err)
		}
	})
	ips, err := b.Setup(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	sink(t, free.NetNS)
	sink(t, slow.NetNS)
	// Half a second at the limit, besides the burst; the upper bounds leave room for that.
	within := func(what string, got, low, high float64) {
		t.Helper()
		t.Logf("%s: %.1f Mbit/s", what, got/1e6)
		if got < low || got > high {
			t.Errorf("%s: %.1f Mbit/s, want %.1f to %.1f", what, got/1e6, low/1e6, high/1e6)
		}
	}
	within("received", send(t, free.NetNS, ips[0], 700_000), 4e6, 11e6)
	within("sent", send(t, slow.NetNS, freeIP, 1_500_000), 8e6, 22e6)
	slow.Bandwidth = bandwidth.Limits{Egress: 16_000_000}
	if err := b.Limit(slow); err != nil {
		t.Fatal(err)
	}
	if got := send(t, free.NetNS, ips[0], 5_000_000); got < 40e6 {
		t.Errorf("a limit that was taken back still holds: %.1f Mbit/s", got/1e6)
	}
}
