package apiserver

import (
	corev1 "k8s.io/api/core/v1"
)

// NodeAddresses are the addresses of a machine as its Node shows them.
func NodeAddresses(ips []string, hostname string) []corev1.NodeAddress {
	out := make([]corev1.NodeAddress, 0, len(ips)+1)
	for _, ip := range ips {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: hostname})
}
