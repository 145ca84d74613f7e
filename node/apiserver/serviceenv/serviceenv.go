// Package serviceenv returns the environment variables with the address of an API server for pods: those of the Service `kubernetes`.
//
// It is pure: no clock, no state, no goroutines. It must not know which containers get them.
package serviceenv

import (
	"net"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Variables from which clients in pods learn the address of the API server.
const (
	envServiceHost = "KUBERNETES_SERVICE_HOST"
	envServicePort = "KUBERNETES_SERVICE_PORT"
	envPort        = "KUBERNETES_PORT"
)

// Is reports whether a variable is one of the Service `kubernetes`.
func Is(name string) bool {
	return name == envServiceHost || name == envServicePort || name == envServicePort+"_HTTPS" || name == envPort || strings.HasPrefix(name, envPort+"_")
}

// Variables returns the variables that a kubelet sets for the Service `kubernetes` regardless of enableServiceLinks, in the order of Docker
// links. They name the API server itself.
func Variables(host, port string) []corev1.EnvVar {
	tcp, address := envPort+"_"+port+"_TCP", "tcp://"+net.JoinHostPort(host, port)
	return []corev1.EnvVar{
		{Name: envServiceHost, Value: host},
		{Name: envServicePort, Value: port},
		{Name: envServicePort + "_HTTPS", Value: port},
		{Name: envPort, Value: address},
		{Name: tcp, Value: address},
		{Name: tcp + "_PROTO", Value: "tcp"},
		{Name: tcp + "_PORT", Value: port},
		{Name: tcp + "_ADDR", Value: host},
	}
}

// Address returns the address of the API server for a pod: that of the kubeconfig. A loopback address is replaced by an address of the
// Node, unless the pod uses the host network.
func Address(p *corev1.Pod, server string, node *corev1.Node) (host, port string, ok bool) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "", "", false
	}
	host, port = u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
		if port == "" {
			port = "443"
		}
	}
	ip := net.ParseIP(host)
	if p.Spec.HostNetwork || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return host, port, true
	}
	if node == nil {
		return "", "", false
	}
	at := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	if at < 0 {
		return "", "", false
	}
	return node.Status.Addresses[at].Address, port, true
}
