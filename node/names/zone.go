// Package names answers the DNS queries of pods, so that they find each other by name.
//
// It owns the names of pods and Services below the cluster domain (Zone, pure) and a small resolver (Server) that
// answers for those and passes everything else on to the resolvers of the host. It must not know where pods come
// from nor what runs them: it is given their manifests with the status filled in.
//
// Goroutines: Server.Run has one per listening socket, one per TCP connection and one per query that is passed on,
// and waits for all of them.
package names

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/manifests"
)

// Zone is what is known of all names at one moment. It never changes.
//
//	<pod>.<namespace>.svc.<domain>                     the pod
//	<hostname>.<subdomain>.<namespace>.svc.<domain>    the pods with this hostname and subdomain
//	<service>.<namespace>.svc.<domain>                 the addresses of the Service, or the ready pods that it selects
//	<a-b-c-d>.<service>.<namespace>.svc.<domain>       one of those, by its address
//	_<port>._<protocol>.<service>.<namespace>...       the port of a Service with addresses, else those of its pods (SRV)
//	<a-b-c-d>.<namespace>.pod.<domain>                 the pod with that address
type Zone struct {
	domain string
	// records by name: lower case, without the dot at the end. An empty one is a name that only has others below it.
	records map[string]record
	// reverse holds the name of each pod's address.
	reverse map[netip.Addr]string
}

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

// NewZone names pods and Services below domain. Pods are those that exist, with their status; of several things of
// one name Services come first, then host names in subdomains, then pods.
func NewZone(domain string, pods []*corev1.Pod, services []*corev1.Service) *Zone {
	z := &Zone{
		domain:  normal(domain),
		records: map[string]record{}, reverse: map[netip.Addr]string{},
	}
	b := zoneBuilder{Zone: z}
	for _, p := range pods {
		if addrs := podAddrs(p); len(addrs) > 0 {
			b.hosts = append(b.hosts, host{pod: p, addrs: addrs})
		}
	}
	sort.Slice(b.hosts, func(i, j int) bool {
		x, y := b.hosts[i].pod, b.hosts[j].pod
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name)) < 0
	})
	for _, s := range services {
		b.service(s)
	}
	b.subdomains(slices.Collect(maps.Keys(z.records)))
	b.pods()
	b.ancestors()
	return z
}

// host is a pod that has addresses.
type host struct {
	pod   *corev1.Pod
	addrs []netip.Addr
}

type zoneBuilder struct {
	*Zone
	hosts []host
}

// podAddrs returns the addresses of a pod that has any and has not ended.
func podAddrs(p *corev1.Pod) []netip.Addr {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	var out []netip.Addr
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

func (z *Zone) svc(labels ...string) string {
	return strings.ToLower(strings.Join(append(labels, "svc", z.domain), "."))
}

// service enters a Service: its addresses and ports, or without addresses those of the pods that it selects now.
func (b *zoneBuilder) service(s *corev1.Service) {
	name := b.svc(s.Name, s.Namespace)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		b.records[name] = record{alias: strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, "."))}
		return
	}
	r, ips := record{}, clusterIPs(s)
	for _, h := range b.selected(s) {
		r.addrs = append(r.addrs, h.addrs...)
		for _, target := range b.endpoint(h, name) {
			if len(ips) == 0 {
				b.ports(s, target, name, func(p *corev1.ServicePort) int32 { return manifests.TargetPort(p, h.pod) })
			}
		}
	}
	if len(ips) > 0 {
		r.addrs = ips
		for _, a := range ips {
			b.reverse[a] = name
		}
		b.ports(s, name, name, func(p *corev1.ServicePort) int32 { return p.Port })
	}
	b.records[name] = r
}

// clusterIPs returns the addresses of a Service.
func clusterIPs(s *corev1.Service) (out []netip.Addr) {
	for _, ip := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// selected returns the pods behind a Service.
func (b *zoneBuilder) selected(s *corev1.Service) []host {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	match := labels.SelectorFromSet(s.Spec.Selector)
	var out []host
	for _, h := range b.hosts {
		usable := s.Spec.PublishNotReadyAddresses || manifests.IsReady(h.pod) && h.pod.DeletionTimestamp == nil
		if h.pod.Namespace == s.Namespace && match.Matches(labels.Set(h.pod.Labels)) && usable {
			out = append(out, h)
		}
	}
	return out
}

// endpoint enters the names of a pod below a Service's, one for each address, and returns them. A pod with a host
// name in the subdomain that is called like the Service has that name.
func (b *zoneBuilder) endpoint(h host, service string) []string {
	if h.pod.Spec.Subdomain != "" && b.svc(h.pod.Spec.Subdomain, h.pod.Namespace) == service {
		name := hostname(h.pod) + "." + service
		return []string{strings.ToLower(name)}
	}
	var all []string
	for _, a := range h.addrs {
		name := dashed(a) + "." + service
		b.records[name] = record{addrs: []netip.Addr{a}}
		all = append(all, name)
	}
	return all
}

// dashed writes an address as a label.
func dashed(a netip.Addr) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, a.StringExpanded())
}

// ports enters the SRV records of one target: the Service itself or one of its pods. of returns its number of a port; 0: it has none.
func (b *zoneBuilder) ports(s *corev1.Service, target, service string, of func(*corev1.ServicePort) int32) {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		number := uint16(of(p))
		if p.Name == "" || number == 0 {
			continue
		}
		protocol := strings.ToLower(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		name := "_" + p.Name + "._" + protocol + "." + service
		r := b.records[name]
		r.ports = append(r.ports, port{target: target, number: number})
		b.records[name] = r
	}
}

// hostname is what a pod calls itself, without its domain.
func hostname(p *corev1.Pod) string { return cmp.Or(p.Spec.Hostname, p.Name) }

// subdomains enters the host names of pods in their subdomains.
func (b *zoneBuilder) subdomains(services []string) {
	for _, h := range b.hosts {
		if h.pod.Spec.Subdomain == "" {
			continue
		}
		name := b.svc(hostname(h.pod), h.pod.Spec.Subdomain, h.pod.Namespace)
		if slices.Contains(services, name) {
			continue
		}
		r := b.records[name]
		r.addrs = append(r.addrs, h.addrs...)
		b.records[name] = r
		b.pointer(h, name)
	}
}

// pods enters the names of pods.
func (b *zoneBuilder) pods() {
	for _, h := range b.hosts {
		name := b.svc(h.pod.Name, h.pod.Namespace)
		if _, taken := b.records[name]; !taken {
			b.records[name] = record{addrs: h.addrs}
		}
		b.pointer(h, name)
		for _, a := range h.addrs {
			b.records[strings.ToLower(strings.Join([]string{dashed(a), h.pod.Namespace, "pod", b.domain}, "."))] = record{addrs: []netip.Addr{a}}
		}
	}
}

// pointer enters the way back from a pod's addresses. Those of the machine have names elsewhere.
func (b *zoneBuilder) pointer(h host, name string) {
	if h.pod.Spec.HostNetwork {
		return
	}
	for _, a := range h.addrs {
		if _, taken := b.reverse[a]; !taken {
			b.reverse[a] = name
		}
	}
}

// ancestors makes every name above another one exist.
func (b *zoneBuilder) ancestors() {
	b.enter(b.domain)
	for _, name := range slices.Collect(maps.Keys(b.records)) {
		for name != b.domain {
			_, name, _ = strings.Cut(name, ".")
			b.enter(name)
		}
	}
}

func (b *zoneBuilder) enter(name string) {
	if _, taken := b.records[name]; !taken {
		b.records[name] = record{}
	}
}

// normal is the form in which names are compared.
func normal(name string) string { return strings.ToLower(strings.Trim(name, ".")) }

// owns reports whether a name belongs to a domain.
func owns(domain, name string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// reverseAddr returns the address that a name below in-addr.arpa or ip6.arpa is about.
func reverseAddr(name string) (netip.Addr, bool) {
	if v4, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		parts := strings.Split(v4, ".")
		slices.Reverse(parts)
		a, err := netip.ParseAddr(strings.Join(parts, "."))
		return a, err == nil && a.Is4()
	}
	v6, ok := strings.CutSuffix(name, ".ip6.arpa")
	digits := strings.Split(v6, ".")
	if !ok || len(digits) != 32 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i, d := range digits {
		v, err := strconv.ParseUint(d, 16, 4)
		if err != nil || len(d) != 1 {
			return netip.Addr{}, false
		}
		at := 31 - i
		b[at/2] |= byte(v) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(b), true
}
