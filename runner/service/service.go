// Package service implements Services on one machine: allocation of addresses and node ports (Assign), the endpoints of connections (Plan),
// and the environment variables of containers (Env).
//
// It is pure; it must not know how the kernel translates addresses, nor read or write files. It starts no goroutines.
package service

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

// Config is the configuration for all Services on a machine.
type Config struct {
	// Ranges are the ranges of cluster IPs, at most one per address family. The first is used for Services that do not name a family.
	Ranges []netip.Prefix
	// Instance makes two instances on one machine choose different addresses and node ports from the same ranges.
	Instance string
	// Node are the addresses of the machine, for Services of type LoadBalancer.
	Node []netip.Addr
	// Origins are those of the Services: what the local space asks for, it takes from others, and what an API server has given is kept regardless of
	// the ranges. Nil: they are all of the local space.
	Origins *model.Origins
}

// Range of node ports, as in Kubernetes.
const (
	FirstNodePort = 30000
	LastNodePort  = 32767
)

// DefaultAffinity is the default timeout of session affinity.
const DefaultAffinity = 3 * time.Hour

// Protocols of ports.
const (
	TCP = "tcp"
	UDP = "udp"
)

// Note reports a field of a Service that has no effect.
type Note struct {
	// Service is its namespace and name.
	Service string
	Text    string
}

// Frontend is an address and port of a Service.
type Frontend struct {
	Protocol string
	// Addr is a cluster IP, an external IP or an address of the node; the unspecified address of a family means all addresses of the
	// machine.
	Addr netip.Addr
	Port uint16
}

// Port maps a Frontend to its endpoints.
type Port struct {
	Frontend
	// Service is the namespace and name of its Service.
	Service string
	// Sticky is how long a client stays with the same endpoint after its last connection; 0 disables session affinity.
	Sticky time.Duration
	// From are the networks that clients may have an address of, sorted; connections of others are dropped. Empty: any.
	From []netip.Prefix
	// To are the endpoints, sorted. Without any, connections are refused.
	To []netip.AddrPort
}

// Table is the desired translation of connections to Services.
type Table struct {
	// Ports are sorted by Frontend, which is unique.
	Ports []Port
	// IPs are the cluster IPs, sorted. Connections to their other ports are refused.
	IPs []netip.Addr
	// Ranges are the ranges of cluster IPs. Connections of pods to their other addresses are refused.
	Ranges []netip.Prefix
	// Over are the Services, by namespace and name, some of whose frontends are missing because of MaxElements. Sorted.
	Over []string
}

// keyOf returns the namespace and name of a Service.
func keyOf(s *corev1.Service) string { return s.Namespace + "/" + s.Name }
