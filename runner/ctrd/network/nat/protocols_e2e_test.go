//go:build e2e

package nat_test

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"testing"
	"time"

	"monopod/e2e/netbed"
	"monopod/runner/ctrd/network"
)

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
	out := netbed.Outside(t)
	b := netbed.New(t, "10.199.22.0/24").Start(t)
	p, _ := b.Up(t, "sctp", network.PortMapping{HostPort: 3868, ContainerPort: 3869, Protocol: "SCTP"})
	var in *net.IPConn
	err := netbed.InNet(t, p.NetNS, func() (err error) {
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
	err = netbed.InNet(t, out, func() error {
		c, err := net.Dial("ip4:132", netbed.UplinkAddr)
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

func TestAUDPFlowFollowsItsPort(t *testing.T) {
	b := netbed.New(t, "10.199.36.0/24").Start(t)
	c, err := net.Dial("udp", "127.0.0.1:8053")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func() string {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte("?")) // the first write after a refusal reports that
		_, _ = c.Write([]byte("?"))
		buf := make([]byte, 100)
		n, _ := c.Read(buf)
		return string(buf[:n])
	}
	if got := ask(); got != "" {
		t.Fatalf("answered %q before there is a pod", got)
	}
	port := network.PortMapping{HostPort: 8053, ContainerPort: 53, Protocol: "UDP"}
	for _, id := range []string{"one", "two"} {
		p := b.Pod(t, id, port)
		if _, err := b.Setup(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		netbed.Serve(t, p.NetNS, ":53")
		if got := ask(); got == "" {
			t.Errorf("pod %s is not reached by a client that was there before it", id)
		}
		if err := b.Teardown(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
}
