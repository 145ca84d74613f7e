package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"

	"monopod/internal/model"
	"monopod/manifests"
)

const (
	// MaxElements limits what all Services have in the kernel, for each address family: a frontend is one element, and each of its endpoints one
	// more. A table is changed by one transaction, which has room for no more; and few manifests make many pairs of Services and pods.
	MaxElements = 40_000
	// stickyElements is what an endpoint with session affinity counts: it has a chain and a set.
	stickyElements = 14
)

// Plan returns where connections to Services lead. Services and memory are those that Assign has returned. Of two Services with the same frontend the
// one of the local space has it, or the one that came first.
func Plan(e model.Endpoints, m Memory) Table {
	b := builder{
		pods: indexPods(e.Pods), ports: map[Frontend]Port{}, outside: newOutside(e.Services, e.Origins),
		room: map[bool]int{false: MaxElements, true: MaxElements}, over: map[string]bool{},
	}
	for _, s := range m.inOrder(e.Services, e.Origins) {
		if s.Spec.ClusterIP != "" && HasIP(s) {
			b.service(s)
		}
	}
	t := Table{IPs: b.ips, Over: slices.Sorted(maps.Keys(b.over))}
	slices.SortFunc(t.IPs, compareAddrs)
	t.Ports = slices.SortedFunc(maps.Values(b.ports), func(x, y Port) int {
		return cmp.Or(compareAddrs(x.Addr, y.Addr), cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Port, y.Port))
	})
	return t
}

// label is one label of the pods of a namespace.
type label struct{ namespace, name, value string }

// builder is one call of Plan.
type builder struct {
	pods  map[label][]*corev1.Pod
	ips   []netip.Addr
	ports map[Frontend]Port
	outside
	// room is how many more elements there may be by address family; true: IPv6. over has the Services that needed more.
	room map[bool]int
	over map[string]bool
	// ready, ending and to are buffers, because few manifests make many pairs of Services and pods, most of which there is no room for.
	ready, ending []*corev1.Pod
	to            []netip.AddrPort
}

// indexPods returns the pods that can be endpoints by each of their labels.
func indexPods(pods []*corev1.Pod) map[label][]*corev1.Pod {
	out := map[label][]*corev1.Pod{}
	for _, p := range pods {
		if len(p.Status.PodIPs) == 0 || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for name, value := range p.Labels {
			at := label{p.Namespace, name, value}
			out[at] = append(out[at], p)
		}
	}
	return out
}

// service adds a Service.
func (b *builder) service(s *corev1.Service) {
	ips := addrs(s.Spec.ClusterIPs)
	b.ips = append(b.ips, ips...)
	balanced := balancerIPs(s)
	outer := slices.Concat(balanced, b.external(s))
	used := b.endpoints(s)
	from := map[bool][]netip.Prefix{}
	for _, ip := range balanced {
		if v6 := ip.Is6(); from[v6] == nil {
			from[v6] = clients(s.Spec.LoadBalancerSourceRanges, balanced, v6)
		}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Protocol == corev1.ProtocolSCTP {
			continue
		}
		for _, ip := range ips {
			b.port(s, p, Frontend{Addr: ip, Port: uint16(p.Port)}, used)
		}
		for _, ip := range outer {
			f := Frontend{Protocol: strings.ToLower(string(p.Protocol)), Addr: ip, Port: uint16(p.Port)}
			if b.refused(s, f) == "" && b.port(s, p, f, used) {
				b.taken[f] = keyOf(s)
			}
		}
		b.limit(s, p, balanced, from)
		if p.NodePort == 0 {
			continue
		}
		for _, ip := range ips {
			all := netip.IPv4Unspecified()
			if ip.Is6() {
				all = netip.IPv6Unspecified()
			}
			b.port(s, p, Frontend{Addr: all, Port: uint16(p.NodePort)}, used)
		}
	}
	b.open(s)
	b.targets(s, ips, used)
}

// balancerIPs returns the addresses of a Service of type LoadBalancer.
func balancerIPs(s *corev1.Service) (all []netip.Addr) {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		all = append(all, addrs([]string{in.IP})...)
	}
	return all
}

// limit limits the clients of a port at the addresses of a load balancer to loadBalancerSourceRanges. As with kube-proxy, external IPs and node ports
// have no such limit. from are the networks of clients by address family; all ports share them.
func (b *builder) limit(s *corev1.Service, p *corev1.ServicePort, balanced []netip.Addr, from map[bool][]netip.Prefix) {
	for _, ip := range balanced {
		f := Frontend{Protocol: strings.ToLower(string(p.Protocol)), Addr: ip, Port: uint16(p.Port)}
		if out, ok := b.ports[f]; ok && out.Service == keyOf(s) {
			out.From = from[ip.Is6()]
			b.ports[f] = out
		}
	}
}

// clients returns the source ranges of an address family; none: any client may connect. The machine itself connects from the address of the load
// balancer, so a range with one of these addresses stands for all of them.
func clients(ranges []string, balanced []netip.Addr, v6 bool) (all []netip.Prefix) {
	machine := false
	for _, r := range sourceRanges(ranges, v6) {
		if r.Bits() == 0 {
			return nil
		}
		all = append(all, r)
		machine = machine || slices.ContainsFunc(balanced, r.Contains)
	}
	for _, ip := range balanced {
		if machine && ip.Is6() == v6 {
			all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// sourceRanges returns the networks of an address family in loadBalancerSourceRanges, which may have leading zeros and spaces.
func sourceRanges(ranges []string, v6 bool) (all []netip.Prefix) {
	for _, text := range ranges {
		_, cidr, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text))
		if err != nil {
			continue
		}
		ip, _ := netip.AddrFromSlice(cidr.IP)
		bits, _ := cidr.Mask.Size()
		if ip.Is4In6() {
			ip, bits = ip.Unmap(), max(bits-96, 0)
		}
		if ip.Is6() == v6 {
			all = append(all, netip.PrefixFrom(ip, bits))
		}
	}
	return all
}

// targets opens the ports of the pods at the cluster IPs, too, where the Service has no such port: before there were cluster IPs, clients used them with
// the name of the Service.
func (b *builder) targets(s *corev1.Service, ips []netip.Addr, used []*corev1.Pod) {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Protocol == corev1.ProtocolSCTP {
			continue
		}
		target := uint16(0)
		for _, pod := range used {
			if n := uint16(manifests.TargetPort(p, pod)); target == 0 {
				target = n
			} else if n != 0 && n != target {
				target = 0
				break
			}
		}
		for _, ip := range ips {
			if target != 0 {
				b.port(s, p, Frontend{Addr: ip, Port: target}, used)
			}
		}
	}
}

// port adds one frontend of a Service, unless it is taken. It reports false if there is no room for it: connections to it are not translated.
func (b *builder) port(s *corev1.Service, p *corev1.ServicePort, f Frontend, used []*corev1.Pod) bool {
	f.Protocol = strings.ToLower(string(p.Protocol))
	if _, taken := b.ports[f]; taken {
		return true
	}
	out := Port{Frontend: f, Service: keyOf(s)}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.Sticky = DefaultAffinity
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil && *c.ClientIP.TimeoutSeconds > 0 {
			out.Sticky = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	each, v6 := 1, f.Addr.Is6()
	if out.Sticky > 0 {
		each = stickyElements
	}
	b.collect(p, v6, used)
	n := 1 + each*len(b.to)
	if n > b.room[v6] {
		b.over[out.Service] = true
		return false
	}
	b.room[v6] -= n
	out.To = append(out.To, b.to...)
	b.ports[f] = out
	return true
}

// collect sets b.to to the endpoints of a port, sorted.
func (b *builder) collect(p *corev1.ServicePort, v6 bool, used []*corev1.Pod) {
	b.to = b.to[:0]
	for _, pod := range used {
		number := uint16(manifests.TargetPort(p, pod))
		for _, ip := range pod.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if a = a.Unmap(); err == nil && number != 0 && a.Is6() == v6 {
				b.to = append(b.to, netip.AddrPortFrom(a, number))
				break
			}
		}
	}
	slices.SortFunc(b.to, netip.AddrPort.Compare)
	b.to = slices.Compact(b.to)
}

// endpoints returns the backend pods of a Service: the ready ones, or, if there are none, terminating ones that still serve. The result is
// valid until the next call.
func (b *builder) endpoints(s *corev1.Service) []*corev1.Pod {
	var best []*corev1.Pod
	for name, value := range s.Spec.Selector { // any label will do
		best = b.pods[label{s.Namespace, name, value}]
		break
	}
	b.ready, b.ending = b.ready[:0], b.ending[:0]
	for _, p := range best {
		if !selects(s.Spec.Selector, p.Labels) || !b.origins.Selects(s, p) {
			continue
		}
		switch {
		case s.Spec.PublishNotReadyAddresses:
			b.ready = append(b.ready, p)
		case !manifests.IsReady(p):
		case p.DeletionTimestamp != nil:
			b.ending = append(b.ending, p)
		default:
			b.ready = append(b.ready, p)
		}
	}
	if len(b.ready) == 0 {
		return b.ending
	}
	return b.ready
}

func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if have, ok := labels[name]; !ok || have != value {
			return false
		}
	}
	return true
}

// addrs parses addresses. Invalid ones are omitted.
func addrs(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsUnspecified() {
			out = append(out, a.Unmap())
		}
	}
	return out
}
