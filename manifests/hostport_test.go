package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestHostPortsOverlapOnOneAddressOrOnEvery(t *testing.T) {
	port := func(protocol corev1.Protocol, ip string, n int32) HostPort {
		return HostPortOf(&corev1.ContainerPort{Protocol: protocol, HostIP: ip, HostPort: n})
	}
	for _, c := range []struct {
		a, b HostPort
		text string // of a
		want bool
	}{
		{port("", "", 80), port("TCP", "", 80), "80/TCP", true},
		{port("TCP", "0.0.0.0", 80), port("TCP", "192.0.2.1", 80), "80/TCP", true},
		{port("TCP", "::", 80), port("TCP", "::1", 80), "80/TCP", true},
		{port("TCP", "127.0.0.1", 80), port("TCP", "127.0.0.1", 80), "127.0.0.1:80/TCP", true},
		{port("TCP", "127.0.0.1", 80), port("TCP", "192.0.2.1", 80), "127.0.0.1:80/TCP", false},
		{port("UDP", "", 80), port("TCP", "", 80), "80/UDP", false},
		{port("SCTP", "", 80), port("SCTP", "", 81), "80/SCTP", false},
	} {
		if c.a.Overlaps(c.b) != c.want || c.b.Overlaps(c.a) != c.want || c.a.String() != c.text {
			t.Errorf("%s and %s: %v", c.a, c.b, c.a.Overlaps(c.b))
		}
	}
}
