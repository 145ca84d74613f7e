package service

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

// line returns the Services without an API server's addresses in the order in which they came, and gives each its place. Earlier ones existed before.
func (a *assigner) line() (earlier, later []*corev1.Service) {
	last, old := uint64(0), true // whether no Service has a place: an older version has written the memory
	for _, g := range a.before {
		last, old = max(last, g.Order), old && g.Order == 0
	}
	for _, s := range a.all {
		had, found := a.before[keyOf(s)]
		switch {
		case addressed(s, a.Origins):
		case had.Order > 0 || old && found:
			earlier = append(earlier, s)
		default:
			later = append(later, s)
		}
	}
	slices.SortStableFunc(earlier, func(x, y *corev1.Service) int {
		return cmp.Compare(a.before[keyOf(x)].Order, a.before[keyOf(y)].Order)
	})
	for _, s := range slices.Concat(earlier, later) {
		order := a.before[keyOf(s)].Order
		if order == 0 {
			last++
			order = last
		}
		a.after[keyOf(s)] = Allocation{Order: order}
	}
	return earlier, later
}

// inOrder returns Services in the order in which they are served: those of the local space, then those with an API server's addresses, then the others
// in the order in which they came.
func (m Memory) inOrder(all []*corev1.Service, o *model.Origins) []*corev1.Service {
	all = slices.Clone(all)
	rank := func(s *corev1.Service) int {
		if o.Offers(s) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(x, y *corev1.Service) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(m.Services[keyOf(x)].Order, m.Services[keyOf(y)].Order))
	})
	return all
}

// hold keeps what existing Services had from others, until they have got something else that they ask for.
func (a *assigner) hold(earlier []*corev1.Service) {
	hold := func(value, key string) {
		if a.owners[value] == "" && a.held[value] == "" {
			a.held[value] = key
		}
	}
	for _, s := range earlier {
		key := keyOf(s)
		had := a.before[key]
		for _, r := range a.ranges(s) {
			if ip, ok := had.in(r); ok && usable(r, ip) {
				hold(ip.String(), key)
			}
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if node := had.NodePorts[portKey(p.Protocol, p.Port)]; node != 0 && mayOpen(s) && (allocates(s) || p.NodePort != 0) {
				hold(portKey(p.Protocol, node), key)
			}
		}
	}
}

// free reports whether a Service can have an address or a node port.
func (a *assigner) free(key, value string) bool {
	return a.owners[value] == "" && (a.held[value] == "" || a.held[value] == key)
}

// written gives Services what their documents ask for, as far as no other one has it. One that moves makes its former address free.
func (a *assigner) written(all []*corev1.Service) {
	for again := true; again; {
		again = false
		for _, s := range all {
			again = a.writtenIPs(s, keyOf(s)) || again
			again = a.writtenPorts(s, keyOf(s)) || again
		}
	}
}

func (a *assigner) writtenIPs(s *corev1.Service, key string) (given bool) {
	ranges := a.ranges(s)
	for _, text := range clusterIPs(s) {
		ip, err := netip.ParseAddr(text)
		ip = ip.Unmap()
		i := slices.IndexFunc(ranges, func(r netip.Prefix) bool { return err == nil && usable(r, ip) })
		if i < 0 || !a.free(key, ip.String()) {
			continue
		}
		if _, done := a.after[key].in(ranges[i]); done {
			continue
		}
		a.assignIP(key, ip)
		given = true
		if was, ok := a.before[key].in(ranges[i]); ok && a.held[was.String()] == key {
			delete(a.held, was.String())
		}
	}
	return given
}

func (a *assigner) writtenPorts(s *corev1.Service, key string) (given bool) {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		at := portKey(p.Protocol, p.Port)
		_, done := a.after[key].NodePorts[at]
		if done || !mayOpen(s) || !inPorts(p.NodePort) || !a.free(key, portKey(p.Protocol, p.NodePort)) {
			continue
		}
		a.assignNodePort(key, p, uint16(p.NodePort))
		given = true
		if was := portKey(p.Protocol, a.before[key].NodePorts[at]); a.held[was] == key {
			delete(a.held, was)
		}
	}
	return given
}

// inPorts reports whether a number can be a node port.
func inPorts(n int32) bool { return n >= FirstNodePort && n <= LastNodePort }

// clusterIPs returns the cluster IPs that a Service asks for.
func clusterIPs(s *corev1.Service) []string {
	if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
		return []string{s.Spec.ClusterIP}
	}
	return slices.DeleteFunc(slices.Clone(s.Spec.ClusterIPs), func(text string) bool { return text == "" })
}

const otherIP = "a different address is used: write a free one or none"

// complain notes what a Service asks for and does not get.
func (a *assigner) complain(s *corev1.Service, key string) {
	ranges, given := a.ranges(s), a.after[key]
	for _, text := range clusterIPs(s) {
		ip, err := netip.ParseAddr(text)
		ip = ip.Unmap()
		owner := cmp.Or(a.owners[ip.String()], a.held[ip.String()])
		switch {
		case len(ranges) == 0, slices.Contains(given.IPs, ip):
		case err != nil || !slices.ContainsFunc(a.Ranges, func(r netip.Prefix) bool { return usable(r, ip) }):
			a.note(key, "spec.clusterIP %s is not in serviceSubnet; %s", text, otherIP)
		case owner != "":
			a.note(key, "spec.clusterIP %s is already used by %s; %s", text, a.describe(s, owner), otherIP)
		default:
			a.note(key, "spec.clusterIP %s is of an address family that the Service does not have: it is not used; see spec.ipFamilyPolicy", text)
		}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		instead := "a different port is used: write a free one or none"
		if !allocates(s) {
			instead = "it is not opened: write a free one"
		}
		owner := cmp.Or(a.owners[portKey(p.Protocol, p.NodePort)], a.held[portKey(p.Protocol, p.NodePort)])
		switch {
		case !mayOpen(s) || p.NodePort == 0 || int32(given.NodePorts[portKey(p.Protocol, p.Port)]) == p.NodePort:
		case !inPorts(p.NodePort):
			a.note(key, "spec.ports[%d].nodePort %d is not between %d and %d; %s", i, p.NodePort, FirstNodePort, LastNodePort, instead)
		case owner != "":
			a.note(key, "spec.ports[%d].nodePort %d is already used by %s; %s", i, p.NodePort, a.describe(s, owner), instead)
		}
	}
}
