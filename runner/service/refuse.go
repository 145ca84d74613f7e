package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Refused returns why kube-apiserver would not store a Service: it asks for a cluster IP or a node port that is not in the range, or that another
// Service has. Given are those that Assign has returned. What the Service has already is not refused.
func Refused(s *corev1.Service, given []*corev1.Service, c Config) field.ErrorList {
	if len(c.Ranges) == 0 || !HasIP(s) {
		return nil
	}
	var errs field.ErrorList
	ips, ports, own := map[netip.Addr]bool{}, map[int32]bool{}, &corev1.ServiceSpec{}
	for _, other := range given {
		if keyOf(other) == keyOf(s) {
			own = &other.Spec
			continue
		}
		for _, ip := range addrs(other.Spec.ClusterIPs) {
			ips[ip] = true
		}
		for i := range other.Spec.Ports {
			ports[other.Spec.Ports[i].NodePort] = true
		}
	}
	for _, text := range clusterIPs(s) {
		ip, err := netip.ParseAddr(text)
		if ip = ip.Unmap(); err != nil || slices.Contains(addrs(own.ClusterIPs), ip) {
			continue
		}
		why := ""
		if !slices.ContainsFunc(c.Ranges, func(r netip.Prefix) bool { return usable(r, ip) }) {
			why = fmt.Sprintf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, list(c.Ranges))
		} else if ips[ip] {
			why = "provided IP is already allocated"
		}
		if why != "" {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs"), clusterIPs(s), fmt.Sprintf("failed to allocate IP %s: %s", text, why)))
		}
	}
	return append(errs, refusedPorts(s, own, ports)...)
}

// refusedPorts is about node ports. A number belongs to one Service, whatever the protocol.
func refusedPorts(s *corev1.Service, own *corev1.ServiceSpec, taken map[int32]bool) (errs field.ErrorList) {
	for i := range s.Spec.Ports {
		n := s.Spec.Ports[i].NodePort
		has := func(p corev1.ServicePort) bool { return p.NodePort == n }
		if n == 0 || !mayOpen(s) || slices.ContainsFunc(own.Ports, has) {
			continue
		}
		why := ""
		if !inPorts(n) {
			why = fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", FirstNodePort, LastNodePort)
		} else if taken[n] {
			why = "provided port is already allocated"
		}
		if why != "" {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), n, why))
		}
	}
	return errs
}

func list(ranges []netip.Prefix) string {
	var all []string
	for _, r := range ranges {
		all = append(all, r.String())
	}
	return strings.Join(all, ",")
}
