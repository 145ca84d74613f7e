package names

import (
	"cmp"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// record is what a name stands for.
type record struct {
	addrs []netip.Addr
	ports []port
	// alias is another name that this one stands for.
	alias string
}

// port is one SRV record.
type port struct {
	target string
	number uint16
}

// record returns what a name stands for, and whether it exists. An empty one is a name that only has others below it.
func (z *Zone) record(name string) (record, bool) {
	if r, ok := z.ofService(name); ok {
		return r, true
	}
	if hosts := z.subdomains[name]; len(hosts) > 0 {
		r := record{}
		for _, h := range hosts {
			r.addrs = append(r.addrs, h.addrs...)
		}
		return r, true
	}
	if h := z.pods[name]; h != nil {
		return record{addrs: h.addrs}, true
	}
	label, _, _ := strings.Cut(name, ".")
	for _, h := range z.dashed[label] {
		if z.podName(label, h.pod.Namespace) == name {
			return record{addrs: h.addressed(label)}, true
		}
	}
	return record{}, z.above[name] || z.isProtocol(name)
}

// ofService returns what a name stands for if that is a Service, one of its ports, or a pod behind it.
func (z *Zone) ofService(name string) (record, bool) {
	if s := z.services[name]; s != nil {
		return z.service(s), true
	}
	first, rest, _ := strings.Cut(name, ".")
	if s := z.services[rest]; s != nil {
		addrs := z.endpoint(s, rest, first)
		return record{addrs: addrs}, len(addrs) > 0
	}
	second, service, _ := strings.Cut(rest, ".")
	s := z.services[service]
	if s == nil || !strings.HasPrefix(first, "_") {
		return record{}, false
	}
	ports := z.ports(s, service, func(p *corev1.ServicePort) bool { return "_"+p.Name == first && protocolLabel(p) == second })
	return record{ports: ports}, len(ports) > 0
}

// service returns the addresses of a Service, or without those the ones of the pods that it selects now.
func (z *Zone) service(s *corev1.Service) record {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return record{alias: strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, "."))}
	}
	if ips := clusterIPs(s); len(ips) > 0 {
		return record{addrs: ips}
	}
	r := record{}
	for _, h := range z.hosts[s.Namespace] {
		if z.selects(s, h) {
			r.addrs = append(r.addrs, h.addrs...)
		}
	}
	return r
}

// selects reports whether a pod of the same namespace is behind a Service.
func (z *Zone) selects(s *corev1.Service, h *host) bool {
	if !z.origins.Selects(s, h.pod) {
		return false
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName || len(s.Spec.Selector) == 0 || h.pod.Namespace != s.Namespace {
		return false
	}
	if !h.ready && !s.Spec.PublishNotReadyAddresses {
		return false
	}
	for k, want := range s.Spec.Selector {
		if v, ok := h.pod.Labels[k]; !ok || v != want {
			return false
		}
	}
	return true
}

// endpoint returns the address that a label stands for below the name of a Service, if that is one of a pod behind it.
func (z *Zone) endpoint(s *corev1.Service, service, label string) []netip.Addr {
	for _, h := range z.dashed[label] {
		if z.selects(s, h) && !z.hasNameIn(h, service) {
			return h.addressed(label)
		}
	}
	return nil
}

// hasNameIn reports whether the subdomain of a pod is called like the Service: then its host name stands for it below that.
func (z *Zone) hasNameIn(h *host, service string) bool {
	return h.pod.Spec.Subdomain != "" && z.svc(h.pod.Spec.Subdomain, h.pod.Namespace) == service
}

// addressed returns the address with a label.
func (h *host) addressed(label string) []netip.Addr {
	for _, a := range h.addrs {
		if dashed(a) == label {
			return []netip.Addr{a}
		}
	}
	return nil
}

// targets returns the names of a pod below a Service's, one for each address unless it has a host name there.
func (z *Zone) targets(h *host, service string) []string {
	if z.hasNameIn(h, service) {
		return []string{strings.ToLower(hostname(h.pod) + "." + service)}
	}
	var all []string
	for _, a := range h.addrs {
		all = append(all, dashed(a)+"."+service)
	}
	return all
}

// ports returns the SRV records of a Service with addresses, else those of its pods, for the ports that are wanted.
func (z *Zone) ports(s *corev1.Service, service string, wanted func(*corev1.ServicePort) bool) []port {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if len(clusterIPs(s)) > 0 {
		return portsOf(s, service, wanted, func(p *corev1.ServicePort) int32 { return p.Port })
	}
	var all []port
	for _, h := range z.hosts[s.Namespace] {
		if !z.selects(s, h) {
			continue
		}
		for _, target := range z.targets(h, service) {
			all = append(all, portsOf(s, target, wanted, func(p *corev1.ServicePort) int32 { return manifests.TargetPort(p, h.pod) })...)
		}
	}
	return all
}

// portsOf returns the SRV records of one target: the Service itself or one of its pods. of returns its number of a port; 0: it has none.
func portsOf(s *corev1.Service, target string, wanted func(*corev1.ServicePort) bool, of func(*corev1.ServicePort) int32) (all []port) {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Name == "" || !wanted(p) {
			continue
		}
		if number := uint16(of(p)); number != 0 {
			all = append(all, port{target: target, number: number})
		}
	}
	return all
}

// isProtocol reports whether a name is above those of a Service's ports.
func (z *Zone) isProtocol(name string) bool {
	label, service, _ := strings.Cut(name, ".")
	s := z.services[service]
	return s != nil && len(z.ports(s, service, func(p *corev1.ServicePort) bool { return protocolLabel(p) == label })) > 0
}

func protocolLabel(p *corev1.ServicePort) string {
	return "_" + strings.ToLower(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
}
