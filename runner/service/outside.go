package service

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

// outside decides which Service has an address and port outside of the cluster: an external IP, or the address of a load balancer. Each has one
// Service, the first to be served, and none is a cluster IP or a node port of a Service that was served earlier. They take connections of the machine,
// as hostPorts do, so sources with limited pods have none.
type outside struct {
	origins *model.Origins
	// cluster are the cluster IPs by Service.
	cluster map[netip.Addr]string
	// taken are the frontends, and the node ports (onNode), by Service.
	taken map[Frontend]string
	// left is how many ports at external IPs there may still be: few manifests make many pairs of both.
	left int
}

// external returns the external IPs of a Service; none if there is no room for its ports at them. It is called once for each Service, in order.
func (o *outside) external(s *corev1.Service) []netip.Addr {
	if n := len(s.Spec.ExternalIPs) * len(s.Spec.Ports); n <= o.left {
		o.left -= n
		return addrs(s.Spec.ExternalIPs)
	}
	return nil
}

func newOutside(all []*corev1.Service, origins *model.Origins) outside {
	o := outside{origins: origins, cluster: map[netip.Addr]string{}, taken: map[Frontend]string{}, left: MaxElements}
	for _, s := range all {
		for _, ip := range addrs(s.Spec.ClusterIPs) {
			if HasIP(s) {
				o.cluster[ip] = keyOf(s)
			}
		}
	}
	return o
}

// refused returns why a Service does not get a frontend; empty: it gets it.
func (o outside) refused(s *corev1.Service, f Frontend) string {
	if !o.origins.Offers(s) && !addressed(s, o.origins) {
		return "it takes connections of the machine, which only sources at podSecurity: privileged may; define this Service there, or use a node port"
	}
	if owner := o.cluster[f.Addr]; owner != "" {
		return f.Addr.String() + " is the cluster IP of Service " + owner
	}
	if owner := o.taken[f]; owner != "" && owner != keyOf(s) {
		return "it is that of Service " + owner
	}
	if owner := o.taken[onNode(f.Protocol, f.Port)]; owner != "" && owner != keyOf(s) {
		return "it is a node port of Service " + owner
	}
	return ""
}

// open takes the node ports of a Service.
func (o outside) open(s *corev1.Service) {
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.NodePort != 0 {
			o.taken[onNode(strings.ToLower(string(p.Protocol)), uint16(p.NodePort))] = keyOf(s)
		}
	}
}

// onNode is a node port of any address family.
func onNode(protocol string, number uint16) Frontend {
	return Frontend{Protocol: protocol, Addr: netip.IPv4Unspecified(), Port: number}
}

// frontends returns the ports of a Service at addresses.
func frontends(s *corev1.Service, ips []netip.Addr) (all []Frontend) {
	for _, ip := range ips {
		for i := range s.Spec.Ports {
			if p := &s.Spec.Ports[i]; p.Protocol != corev1.ProtocolSCTP {
				all = append(all, Frontend{Protocol: strings.ToLower(string(p.Protocol)), Addr: ip, Port: uint16(p.Port)})
			}
		}
	}
	return all
}

// outside notes the frontends that Services ask for and do not get. A load balancer without one of its ports at an address does not have that address:
// clients would come to the pods of another Service.
func (a *assigner) outside(inOrder []*corev1.Service) {
	o := newOutside(a.all, a.Origins)
	for _, s := range inOrder {
		if !HasIP(s) || s.Spec.ClusterIP == "" {
			continue
		}
		if !addressed(s, a.Origins) {
			a.balance(o, s)
		}
		for _, f := range frontends(s, balancerIPs(s)) {
			if o.refused(s, f) == "" {
				o.taken[f] = keyOf(s)
			}
		}
		external := o.external(s)
		if external == nil && len(s.Spec.ExternalIPs)*len(s.Spec.Ports) > o.left {
			a.note(keyOf(s), "its external IPs are not opened: all Services together have more than %d ports at external IPs", MaxElements)
		}
		for _, f := range frontends(s, external) {
			if why := o.refused(s, f); why != "" {
				a.note(keyOf(s), "port %d/%s of the external IP %s is not opened: %s", f.Port, f.Protocol, f.Addr, why)
			} else {
				o.taken[f] = keyOf(s)
			}
		}
		o.open(s)
	}
}

// balance removes the addresses of a load balancer at which it does not have all of its ports.
func (a *assigner) balance(o outside, s *corev1.Service) {
	lost := map[string]bool{}
	for _, f := range frontends(s, balancerIPs(s)) {
		if why := o.refused(s, f); why != "" {
			lost[f.Addr.String()] = true
			a.note(keyOf(s), "the load balancer does not have the address %s: port %d/%s is not opened there; %s", f.Addr, f.Port, f.Protocol, why)
		}
	}
	s.Status.LoadBalancer.Ingress = slices.DeleteFunc(s.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool { return lost[in.IP] })
}
