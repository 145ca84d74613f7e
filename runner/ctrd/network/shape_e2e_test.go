//go:build e2e

package network

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/runner/ctrd/network/bandwidth"
)

// sink takes connections on port 99 of a namespace and reads all that comes.
func sink(tb testing.TB, netns string) {
	tb.Helper()
	var l net.Listener
	err := inNet(tb, netns, func() (err error) {
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
	err := inNet(tb, netns, func() error {
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
	b := newBed(t, "10.199.20.0/24").init(t)
	free, freeIP := b.up(t, "free")
	slow := b.pod(t, "slow")
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

func TestABandwidthThatNoPluginLimitsIsAnError(t *testing.T) {
	b := newBed(t, "10.199.21.0/24")
	if err := os.MkdirAll(filepath.Join(b.dir, "net.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	conf := `{"cniVersion":"1.0.0","name":"bare","plugins":[{"type":"bridge","bridge":"mp-bare","ipam":{"type":"host-local","dataDir":"` +
		b.dir + `/ipam","ranges":[[{"subnet":"10.199.21.0/24"}]]}}]}`
	if err := os.WriteFile(filepath.Join(b.dir, "net.d", "1.conflist"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	b.init(t)
	p := b.pod(t, "p")
	p.Bandwidth = bandwidth.Limits{Ingress: 1e6}
	if _, err := b.Setup(t.Context(), p); err == nil || !strings.Contains(err.Error(), "limits bandwidth") {
		t.Errorf("the limit was dropped: %v", err)
	}
}

// sctpInit is an SCTP packet with an INIT chunk, which connection tracking takes for the start of an association.
func sctpInit(from, to uint16) []byte {
	p := make([]byte, 32)
	binary.BigEndian.PutUint16(p[0:], from)
	binary.BigEndian.PutUint16(p[2:], to)
	p[12] = 1 // INIT
	binary.BigEndian.PutUint16(p[14:], 20)
	binary.BigEndian.PutUint32(p[16:], 0x01020304) // initiate tag
	binary.BigEndian.PutUint32(p[20:], 65536)
	binary.BigEndian.PutUint16(p[24:], 1)
	binary.BigEndian.PutUint16(p[26:], 1)
	binary.BigEndian.PutUint32(p[28:], 1)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// A kernel without SCTP sockets forwards its packets all the same.
func TestHostPortsOfSCTPAreForwarded(t *testing.T) {
	out := outside(t)
	b := newBed(t, "10.199.22.0/24").init(t)
	p, _ := b.up(t, "sctp", PortMapping{HostPort: 3868, ContainerPort: 3869, Protocol: "SCTP"})
	var in *net.IPConn
	err := inNet(t, p.NetNS, func() (err error) {
		in, err = net.ListenIP("ip4:132", &net.IPAddr{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := in.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	err = inNet(t, out, func() error {
		c, err := net.Dial("ip4:132", uplinkAddr)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(sctpInit(40000, 3868))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	n, _, err := in.ReadFromIP(got)
	if err != nil || n < 12 {
		t.Fatalf("nothing arrived in the pod: %d bytes, %v", n, err)
	}
	if port := binary.BigEndian.Uint16(got[2:]); port != 3869 {
		t.Errorf("arrived for port %d, want 3869", port)
	}
}
