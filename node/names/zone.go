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
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
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
//
// It is an index of pods and Services; records are made for each query (see lookup.go). Its size is proportional to pods and Services: each
// pair of a Service and a pod behind it has names, too many to be kept. Names are lower case, without the dot at the end.
type Zone struct {
	domain string
	// services by name. hosts by namespace, those of one in the order of their names.
	services map[string]*corev1.Service
	hosts    map[string][]*host
	// dashed holds the pods with an address, by the label of that.
	dashed map[string][]*host
	// subdomains holds pods by host name and subdomain, pods by their own names, unless another one has the name.
	subdomains map[string][]*host
	pods       map[string]*host
	// above holds the names that have others below them.
	above map[string]bool
	// reverse holds the name of each pod's address.
	reverse map[netip.Addr]string
	origins *model.Origins
}

// host is a pod that has addresses.
type host struct {
	pod   *corev1.Pod
	addrs []netip.Addr
	ready bool
}

// NewZone names pods and Services below domain; of several things of one name Services come first, then host names in subdomains, then pods.
// What is not of the local space takes no name from that.
func NewZone(domain string, e model.Endpoints) *Zone {
	z := &Zone{
		domain: normal(domain), services: map[string]*corev1.Service{}, hosts: map[string][]*host{}, dashed: map[string][]*host{},
		subdomains: map[string][]*host{}, pods: map[string]*host{}, above: map[string]bool{}, reverse: map[netip.Addr]string{}, origins: e.Origins,
	}
	hosts := hostsOf(e.Pods)
	own := map[string]*host{}
	for _, h := range hosts {
		z.hosts[h.pod.Namespace] = append(z.hosts[h.pod.Namespace], h)
		own[z.svc(h.pod.Name, h.pod.Namespace)] = h
		for _, a := range h.addrs {
			z.dashed[dashed(a)] = append(z.dashed[dashed(a)], h)
		}
	}
	z.above[z.domain] = true
	for _, s := range e.Services {
		if h := own[z.svc(s.Name, s.Namespace)]; h == nil || z.origins.Offers(s) || !z.origins.Local(h.pod) {
			z.addService(s)
		}
	}
	for _, local := range []bool{true, false} {
		for _, h := range hosts {
			if z.origins.Local(h.pod) == local {
				z.addSubdomain(h, own)
			}
		}
	}
	for _, h := range hosts {
		z.addPod(h)
	}
	return z
}

// hostsOf returns the pods that have addresses, in the order of their names.
func hostsOf(pods []*corev1.Pod) []*host {
	var out []*host
	for _, p := range pods {
		if addrs := podAddrs(p); len(addrs) > 0 {
			out = append(out, &host{pod: p, addrs: addrs, ready: manifests.IsReady(p) && p.DeletionTimestamp == nil})
		}
	}
	slices.SortFunc(out, func(x, y *host) int {
		return cmp.Or(cmp.Compare(x.pod.Namespace, y.pod.Namespace), cmp.Compare(x.pod.Name, y.pod.Name))
	})
	return out
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

// addService enters a Service and the way back from its addresses.
func (z *Zone) addService(s *corev1.Service) {
	name := z.svc(s.Name, s.Namespace)
	z.services[name] = s
	z.addAbove(name)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	for _, a := range clusterIPs(s) {
		z.reverse[a] = name
	}
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

// dashed writes an address as a label.
func dashed(a netip.Addr) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, a.StringExpanded())
}

// hostname is what a pod calls itself, without its domain.
func hostname(p *corev1.Pod) string { return cmp.Or(p.Spec.Hostname, p.Name) }

// addSubdomain enters the host name of a pod in its subdomain.
func (z *Zone) addSubdomain(h *host, own map[string]*host) {
	if h.pod.Spec.Subdomain == "" {
		return
	}
	name := z.svc(hostname(h.pod), h.pod.Spec.Subdomain, h.pod.Namespace)
	others := z.subdomains[name]
	if o := own[name]; o != nil {
		others = append(slices.Clip(others), o)
	}
	if z.isBelowOther(h, name) || slices.ContainsFunc(others, func(o *host) bool {
		return !z.origins.SameSpace(h.pod, o.pod) && !z.origins.Local(h.pod)
	}) {
		return
	}
	if _, taken := z.ofService(name); taken {
		return
	}
	z.subdomains[name] = append(z.subdomains[name], h)
	z.addAbove(name)
	z.addPointer(h, name)
}

// isBelowOther reports whether a name of a pod is below that of a Service that must not select the pod.
func (z *Zone) isBelowOther(h *host, name string) bool {
	_, parent, _ := strings.Cut(name, ".")
	s := z.services[parent]
	return s != nil && !z.origins.Selects(s, h.pod)
}

// addPod enters the name of a pod.
func (z *Zone) addPod(h *host) {
	name := z.svc(h.pod.Name, h.pod.Namespace)
	if z.isBelowOther(h, name) { // pods may have dots in their names
		return
	}
	if _, taken := z.pods[name]; !taken {
		z.pods[name] = h
	}
	z.addAbove(name)
	z.addPointer(h, name)
	z.addAbove(z.podName("", h.pod.Namespace))
}

// podName returns the name of a pod by the label of its address.
func (z *Zone) podName(label, namespace string) string {
	return strings.ToLower(strings.Join([]string{label, namespace, "pod", z.domain}, "."))
}

// addPointer enters the way back from a pod's addresses. Those of the machine have names elsewhere.
func (z *Zone) addPointer(h *host, name string) {
	if h.pod.Spec.HostNetwork {
		return
	}
	for _, a := range h.addrs {
		if _, taken := z.reverse[a]; !taken {
			z.reverse[a] = name
		}
	}
}

// addAbove makes every name above another one exist.
func (z *Zone) addAbove(name string) {
	for name != z.domain {
		_, name, _ = strings.Cut(name, ".")
		z.above[name] = true
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
