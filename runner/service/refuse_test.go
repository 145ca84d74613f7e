package service

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestWhatKubeAPIServerRefuses is in its words.
func TestWhatKubeAPIServerRefuses(t *testing.T) {
	given, _, _ := Assign([]*corev1.Service{svc("db", ip("10.96.0.10"), func(s *corev1.ServiceSpec) { nodePort(30080)(s) }), svc("web", ip("10.96.0.11"), func(s *corev1.ServiceSpec) { nodePort(30081)(s) })}, Memory{}, dual())
	udp := func(s *corev1.ServiceSpec) { s.Ports[0].Protocol = corev1.ProtocolUDP }
	for name, c := range map[string]struct {
		s    *corev1.Service
		want string
	}{
		"nothing":               {svc("x"), ""},
		"free":                  {svc("x", ip("10.96.0.12"), nodePort(30082)), ""},
		"its own":               {svc("web", ip("10.96.0.11"), nodePort(30081)), ""},
		"that of another":       {svc("x", ip("10.96.0.10")), `spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated`},
		"also on an update":     {svc("web", ip("10.96.0.10")), `spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated`},
		"outside":               {svc("x", ip("192.168.0.1")), `spec.clusterIPs: Invalid value: ["192.168.0.1"]: failed to allocate IP 192.168.0.1: the provided IP (192.168.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16,fd10:96::/112`},
		"a port of another":     {svc("x", nodePort(30080)), "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"},
		"of the other protocol": {svc("x", nodePort(30080), udp), "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"},
		"a port outside":        {svc("x", nodePort(80)), "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"},
		"no node ports":         {svc("x", nodePort(80), typed(corev1.ServiceTypeClusterIP)), ""},
		"headless":              {svc("x", ip("None"), nodePort(80)), ""},
	} {
		var got []string
		for _, e := range Refused(c.s, given, dual()) {
			got = append(got, e.Error())
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %s\nwant %s", name, text, c.want)
		}
	}
	if errs := Refused(svc("x", ip("192.0.2.1"), nodePort(80)), given, config()); len(errs) > 0 {
		t.Errorf("Services are only names: %v", errs)
	}
}
