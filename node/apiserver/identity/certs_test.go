package identity

import (
	"crypto/x509"
	"net"
	"testing"
	"time"
)

func TestTheNextCertificateIsAskedForInTimeAndNotTooOften(t *testing.T) {
	came := time.Unix(1_000_000, 0)
	for name, tt := range map[string]struct {
		before, life     time.Duration // it counts since before it came, and for so long after it came
		earliest, latest time.Duration
	}{
		"a year":                      {5 * time.Minute, 365 * 24 * time.Hour, 255 * 24 * time.Hour, 330 * 24 * time.Hour},
		"an hour":                     {5 * time.Minute, time.Hour, 40 * time.Minute, 54 * time.Minute},
		"a minute, begun five before": {5 * time.Minute, time.Minute, 15 * time.Second, 30 * time.Second},
		"it had ended when it came":   {time.Hour, -time.Minute, -time.Hour, 0},
	} {
		leaf := &x509.Certificate{Raw: []byte(name), NotBefore: came.Add(-tt.before), NotAfter: came.Add(tt.life)}
		if at := renewAt(leaf, came).Sub(came); at < tt.earliest || at > tt.latest {
			t.Errorf("%s: after %v", name, at)
		}
	}
}

func TestACertificateIsForAllNamesThatAreWanted(t *testing.T) {
	want := certificate{ips: []net.IP{net.ParseIP("192.0.2.1"), net.ParseIP("2001:db8::1")}, dns: []string{"n1"}}
	leaf := &x509.Certificate{IPAddresses: []net.IP{net.ParseIP("2001:db8::1"), net.ParseIP("192.0.2.1").To4()}, DNSNames: []string{"n1"}}
	if !want.names(leaf) {
		t.Error("the same names in another order")
	}
	leaf.IPAddresses[1] = net.ParseIP("192.0.2.2")
	if want.names(leaf) {
		t.Error("another address")
	}
	if none := (certificate{}); !none.names(leaf) {
		t.Error("no names are wanted")
	}
}
