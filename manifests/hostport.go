package manifests

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// HostPort is a port of the machine that a container asks for.
type HostPort struct {
	Protocol corev1.Protocol
	// IP is the address; empty: every one.
	IP   string
	Port int32
}

// HostPortOf returns the port of the machine that a port of a container takes, with the defaults filled in and all spellings of "every
// address" made the empty one. Its Port is 0 when it takes none.
func HostPortOf(p *corev1.ContainerPort) HostPort {
	h := HostPort{Protocol: p.Protocol, IP: p.HostIP, Port: p.HostPort}
	if h.Protocol == "" {
		h.Protocol = corev1.ProtocolTCP
	}
	if h.IP == "0.0.0.0" || h.IP == "::" {
		h.IP = ""
	}
	return h
}

// String is the port as messages have it: 80/TCP or 127.0.0.1:80/TCP.
func (h HostPort) String() string {
	if h.IP == "" {
		return fmt.Sprintf("%d/%s", h.Port, h.Protocol)
	}
	return fmt.Sprintf("%s:%d/%s", h.IP, h.Port, h.Protocol)
}

// Overlaps follows Kubernetes: one port of one protocol is taken once for each address, or once for all of them.
func (h HostPort) Overlaps(o HostPort) bool {
	return h.Protocol == o.Protocol && h.Port == o.Port && (h.IP == o.IP || h.IP == "" || o.IP == "")
}
