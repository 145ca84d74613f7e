package service

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/spaces"
)

// Memory holds the allocations of Services, by namespace and name, so that Services keep them.
type Memory struct {
	Services map[string]Allocation `json:"services,omitempty"`
}

// Allocation holds the allocations of one Service.
type Allocation struct {
	IPs []netip.Addr `json:"ips,omitempty"`
	// NodePorts are keyed by protocol and port, e.g. tcp/80.
	NodePorts map[string]uint16 `json:"nodePorts,omitempty"`
	// Order is lower for Services that came earlier, from which later ones take nothing. 0: the Service does not exist now.
	Order uint64 `json:"order,omitempty"`
}

// maxRemembered limits the number of removed Services whose allocations are kept.
const maxRemembered = 4096

// Assign returns copies of the Services, sorted by namespace and name, with all that Kubernetes would fill in: cluster IPs, node ports, the status of
// load balancers and defaults. The same Services get the same addresses again if the returned Memory is passed to the next call. No Service takes an
// address or a port from one that came earlier, but those of the local space take them from all others. The arguments are not modified.
func Assign(services []*corev1.Service, m Memory, c Config) ([]*corev1.Service, Memory, []Note) {
	a := assigner{
		Config: c, before: m.Services, after: map[string]Allocation{}, byKey: map[string]*corev1.Service{}, owners: map[string]string{}, held: map[string]string{}, avoid: map[string]bool{},
	}
	for _, s := range services {
		if key := keyOf(s); a.byKey[key] == nil {
			s = withDefaults(s)
			a.byKey[key], a.all = s, append(a.all, s)
		}
	}
	slices.SortFunc(a.all, func(x, y *corev1.Service) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, s := range a.all {
		if !addressed(s, a.Origins) {
			a.inferFamilies(s)
		}
	}
	a.leaveAlone()
	earlier, later := a.line()
	for _, local := range []bool{true, false} {
		other := func(s *corev1.Service) bool { return a.Origins.Offers(s) != local }
		a.serve(slices.DeleteFunc(slices.Clone(earlier), other), slices.DeleteFunc(slices.Clone(later), other), local)
	}
	a.retainRemoved()
	for _, s := range slices.Concat(earlier, later) {
		a.fill(s)
	}
	given := Memory{Services: a.after}
	a.outside(given.inOrder(a.all, c.Origins))
	slices.SortStableFunc(a.notes, func(x, y Note) int { return cmp.Compare(x.Service, y.Service) })
	return a.all, given, a.notes
}

// assigner is one call of Assign.
type assigner struct {
	Config
	all           []*corev1.Service
	byKey         map[string]*corev1.Service
	before, after map[string]Allocation
	// owners have the Service of each cluster IP, and of each node port as protocol/port. held are what existing Services had and have not got yet.
	owners, held map[string]string
	// avoid are those that Services get only when no others are free.
	avoid map[string]bool
	notes []Note
}

// serve gives the Services of the local space, or all others, their addresses and node ports. What is written has precedence over what was given
// before, and that over what is new. What an API server has given is not chosen here: only what a local Service asks for is taken from it.
func (a *assigner) serve(earlier, later []*corev1.Service, local bool) {
	a.hold(earlier)
	a.written(earlier)
	a.written(later)
	for _, s := range a.all {
		if local && addressed(s, a.Origins) {
			a.keep(s, keyOf(s))
		}
	}
	all := slices.Concat(earlier, later)
	for _, s := range all {
		a.complain(s, keyOf(s))
		a.fromMemory(s, keyOf(s))
	}
	for _, s := range all {
		a.allocate(s, keyOf(s))
	}
}

// leaveAlone determines what is allocated last: what removed Services had, which may be recreated, and what those of other spaces have or ask for.
func (a *assigner) leaveAlone() {
	for key, had := range a.before {
		if s := a.byKey[key]; s != nil && a.Origins.Offers(s) {
			continue
		}
		for _, ip := range had.IPs {
			a.avoid[ip.String()] = true
		}
		for at, node := range had.NodePorts {
			protocol, _, _ := strings.Cut(at, "/")
			a.avoid[portKey(corev1.Protocol(protocol), node)] = true
		}
	}
	for _, s := range a.all {
		if a.Origins.Offers(s) {
			continue
		}
		for _, ip := range addrs(clusterIPs(s)) {
			a.avoid[ip.String()] = true
		}
		for i := range s.Spec.Ports {
			a.avoid[portKey(s.Spec.Ports[i].Protocol, s.Spec.Ports[i].NodePort)] = true
		}
	}
}

// addressed reports whether an API server allocated the addresses of a Service.
func addressed(s *corev1.Service, o *model.Origins) bool {
	return o != nil && o.Services[manifests.Key{Namespace: s.Namespace, Name: s.Name}] == spaces.APIServer
}

// keep reserves the addresses and node ports of a Service that has them from an API server. It loses those that the local space asks for.
func (a *assigner) keep(s *corev1.Service, key string) {
	lost := func(field, value string) bool {
		owner := a.owners[value]
		if owner == "" || owner == key {
			a.owners[value] = key
			return false
		}
		a.note(key, "%s is used by %s: it does not lead to this Service here; change that one", field, a.describe(s, owner))
		return true
	}
	had := len(s.Spec.ClusterIPs)
	s.Spec.ClusterIPs = slices.DeleteFunc(s.Spec.ClusterIPs, func(text string) bool {
		ip, err := netip.ParseAddr(text)
		return err == nil && lost("spec.clusterIP "+text, ip.Unmap().String())
	})
	if len(s.Spec.ClusterIPs) < had {
		s.Spec.ClusterIP = append(s.Spec.ClusterIPs, "")[0]
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort != 0 && lost(fmt.Sprintf("spec.ports[%d].nodePort %d", i, p.NodePort), portKey(p.Protocol, p.NodePort)) {
			p.NodePort = 0
		}
	}
}

// describe names the Service that has what another one asks for, and why it comes first.
func (a *assigner) describe(s *corev1.Service, owner string) string {
	if o := a.byKey[owner]; o != nil && a.Origins.Offers(o) && !a.Origins.Offers(s) {
		return "Service " + owner + " of the local space, which comes first"
	}
	return "Service " + owner
}

func (a *assigner) note(service, format string, args ...any) {
	a.notes = append(a.notes, Note{Service: service, Text: fmt.Sprintf(format, args...)})
}

// HasIP reports whether a Service has a cluster IP: it has ports, and is neither headless nor an ExternalName.
func HasIP(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != corev1.ClusterIPNone && len(s.Spec.Ports) > 0
}

// mayOpen reports whether a Service can be reached at ports of the machine, and allocates whether it gets one for each of its ports.
func mayOpen(s *corev1.Service) bool {
	return HasIP(s) && (s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer)
}

func allocates(s *corev1.Service) bool {
	refused := s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.AllocateLoadBalancerNodePorts != nil && !*s.Spec.AllocateLoadBalancerNodePorts
	return mayOpen(s) && !refused
}

// ranges returns the ranges of a Service, by its families.
func (a *assigner) ranges(s *corev1.Service) []netip.Prefix {
	if !HasIP(s) || len(a.Ranges) == 0 {
		return nil
	}
	var out []netip.Prefix
	for _, f := range s.Spec.IPFamilies {
		if i := slices.IndexFunc(a.Ranges, func(r netip.Prefix) bool { return r.Addr().Is6() == (f == corev1.IPv6Protocol) }); i >= 0 && !slices.Contains(out, a.Ranges[i]) {
			out = append(out, a.Ranges[i])
		}
	}
	dual := s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack
	if !dual && len(out) > 0 {
		return out[:1]
	}
	for _, r := range a.Ranges {
		if (dual || len(out) == 0) && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// inferFamilies gives a Service the address families of the cluster IPs that it asks for, as kube-apiserver does.
func (a *assigner) inferFamilies(s *corev1.Service) {
	for i, text := range clusterIPs(s) {
		ip, err := netip.ParseAddr(text)
		ip = ip.Unmap()
		if err == nil && i >= len(s.Spec.IPFamilies) && slices.ContainsFunc(a.Ranges, func(r netip.Prefix) bool { return usable(r, ip) }) {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, familyOf(ip))
		}
	}
}

// usable reports whether an address can be a cluster IP.
func usable(r netip.Prefix, ip netip.Addr) bool {
	return r.Contains(ip) && ip != r.Masked().Addr() && ip != last(r)
}

// last returns the last address of a range.
func last(r netip.Prefix) netip.Addr {
	b := r.Masked().Addr().AsSlice()
	for i := r.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip
}

// assignIP assigns an address to a Service.
func (a *assigner) assignIP(key string, ip netip.Addr) {
	g := a.after[key]
	g.IPs = append(g.IPs, ip)
	a.owners[ip.String()], a.after[key] = key, g
}

// in returns the address that a Service has in a range.
func (g Allocation) in(r netip.Prefix) (netip.Addr, bool) {
	i := slices.IndexFunc(g.IPs, r.Contains)
	if i < 0 {
		return netip.Addr{}, false
	}
	return g.IPs[i], true
}

func portKey[T int32 | uint16](protocol corev1.Protocol, port T) string {
	return strings.ToLower(string(protocol)) + "/" + strconv.Itoa(int(port))
}

// assignNodePort assigns a node port to a port of a Service.
func (a *assigner) assignNodePort(key string, p *corev1.ServicePort, node uint16) {
	g := a.after[key]
	if g.NodePorts == nil {
		g.NodePorts = map[string]uint16{}
	}
	g.NodePorts[portKey(p.Protocol, p.Port)] = node
	a.owners[portKey(p.Protocol, node)], a.after[key] = key, g
}

// fromMemory assigns the earlier allocations of a Service.
func (a *assigner) fromMemory(s *corev1.Service, key string) {
	had := a.before[key]
	for _, r := range a.ranges(s) {
		_, done := a.after[key].in(r)
		if ip, ok := had.in(r); !done && ok && usable(r, ip) && a.mayKeep(s, "cluster IP "+ip.String(), ip.String(), slices.Contains(addrs(clusterIPs(s)), ip)) {
			a.assignIP(key, ip)
		}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if !allocates(s) && (!mayOpen(s) || p.NodePort == 0) {
			continue
		}
		at := portKey(p.Protocol, p.Port)
		_, done := a.after[key].NodePorts[at]
		if node, ok := had.NodePorts[at]; !done && ok && a.mayKeep(s, fmt.Sprintf("node port %d", node), portKey(p.Protocol, node), p.NodePort == int32(node)) {
			a.assignNodePort(key, p, node)
		}
	}
}

// mayKeep reports whether a Service can still have what it had. That it has lost what it did not ask for to the local space is noted here.
func (a *assigner) mayKeep(s *corev1.Service, what, value string, asked bool) bool {
	if a.free(keyOf(s), value) {
		return true
	}
	if owner := a.byKey[a.owners[value]]; !asked && owner != nil && a.Origins.Offers(owner) && !a.Origins.Offers(s) {
		a.note(keyOf(s), "its %s is now used by %s; it has got another one", what, a.describe(s, keyOf(owner)))
	}
	return false
}

// retainRemoved keeps the allocations of removed Services, in case they are recreated.
func (a *assigner) retainRemoved() {
	kept := map[string]bool{}
	keep := func(value string) bool {
		if a.owners[value] != "" || kept[value] {
			return false
		}
		kept[value] = true
		return true
	}
	count := 0
	for _, key := range slices.Sorted(maps.Keys(a.before)) {
		if a.byKey[key] != nil || count >= maxRemembered {
			continue
		}
		left := Allocation{}
		for _, ip := range a.before[key].IPs {
			if slices.ContainsFunc(a.Ranges, func(r netip.Prefix) bool { return usable(r, ip) }) && keep(ip.String()) {
				left.IPs = append(left.IPs, ip)
			}
		}
		for at, node := range a.before[key].NodePorts {
			protocol, _, _ := strings.Cut(at, "/")
			if keep(portKey(corev1.Protocol(protocol), node)) {
				if left.NodePorts == nil {
					left.NodePorts = map[string]uint16{}
				}
				left.NodePorts[at] = node
			}
		}
		if len(left.IPs)+len(left.NodePorts) > 0 {
			a.after[key] = left
			count++
		}
	}
}

// allocate gives a Service what it does not have yet.
func (a *assigner) allocate(s *corev1.Service, key string) {
	for _, r := range a.ranges(s) {
		if _, done := a.after[key].in(r); done {
			continue
		}
		if ip, ok := a.unused(r, key); ok {
			a.assignIP(key, ip)
		} else {
			a.note(key, "serviceSubnet %s has no free address: the name resolves to the pods", r)
		}
	}
	if !allocates(s) {
		return
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if _, done := a.after[key].NodePorts[portKey(p.Protocol, p.Port)]; done || p.Protocol == corev1.ProtocolSCTP {
			continue
		}
		if node := a.unusedPort(key, p); node != 0 {
			a.assignNodePort(key, p, node)
		} else {
			a.note(key, "spec.ports[%d]: no node port is free", i)
		}
	}
}

// unusedPort returns a node port for a port of a Service, that of its name if possible; 0: none is free.
func (a *assigner) unusedPort(key string, p *corev1.ServicePort) uint16 {
	const all = LastNodePort - FirstNodePort + 1
	start := a.hash(key+"/"+portKey(p.Protocol, p.Port)) % all
	for _, reuse := range []bool{false, true} {
		for n := range uint64(all) {
			node := uint16(FirstNodePort + (start+n)%all)
			if value := portKey(p.Protocol, node); a.owners[value] == "" && (reuse || !a.avoid[value]) {
				return node
			}
		}
	}
	return 0
}

// unused returns an address of a range for a Service, that of its name if possible. The first addresses are left for Services that ask for one.
func (a *assigner) unused(r netip.Prefix, key string) (netip.Addr, bool) {
	size := uint64(1) << min(r.Addr().BitLen()-r.Bits(), 32)
	if size < 4 {
		return netip.Addr{}, false
	}
	band := min(max(size/16, 1), 256)
	start := a.hash(key)
	for _, reuse := range []bool{false, true} {
		for n := range size - 1 - band {
			ip := at(r, band+(start+n)%(size-1-band))
			if a.owners[ip.String()] == "" && (reuse || !a.avoid[ip.String()]) {
				return ip, true
			}
		}
	}
	for n := uint64(1); n < band; n++ {
		if ip := at(r, n); a.owners[ip.String()] == "" {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// at returns the n-th address of a range.
func at(r netip.Prefix, n uint64) netip.Addr {
	b := r.Masked().Addr().AsSlice()
	tail := b[len(b)-4:]
	binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)+uint32(n))
	ip, _ := netip.AddrFromSlice(b)
	return ip
}

func (a *assigner) hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.Instance + "\x00" + text))
	n := h.Sum64() // whose low bits hardly depend on the first letters
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	return n ^ n>>33
}

// fill sets the allocations in a Service.
func (a *assigner) fill(s *corev1.Service) {
	key := keyOf(s)
	given := a.after[key]
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
	}
	var families []corev1.IPFamily
	for _, r := range a.ranges(s) {
		ip, ok := given.in(r)
		if !ok {
			continue
		}
		s.Spec.ClusterIP = cmp.Or(s.Spec.ClusterIP, ip.String())
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, ip.String())
		families = append(families, familyOf(ip))
	}
	if len(families) > 0 {
		s.Spec.IPFamilies = families
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		asked := p.NodePort != 0
		p.NodePort = 0
		if allocates(s) || mayOpen(s) && asked {
			p.NodePort = int32(given.NodePorts[portKey(p.Protocol, p.Port)])
		}
		if p.Protocol == corev1.ProtocolSCTP {
			a.note(key, "spec.ports[%d]: SCTP is not supported; use a headless Service and connect to the pods", i)
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(families) == 0 || s.Spec.LoadBalancerClass != nil {
		return
	}
	a.unlimited(key, s)
	vip := corev1.LoadBalancerIPModeVIP
	s.Status.LoadBalancer.Ingress = nil
	for _, ip := range a.Node {
		if slices.Contains(families, familyOf(ip)) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: &vip})
		}
	}
}

// unlimited notes that a load balancer with source ranges has none of an address family: kube-proxy lets all clients of that family connect.
func (a *assigner) unlimited(key string, s *corev1.Service) {
	for _, family := range s.Spec.IPFamilies {
		if all := s.Spec.LoadBalancerSourceRanges; len(all) > 0 && len(sourceRanges(all, family == corev1.IPv6Protocol)) == 0 {
			a.note(key, "spec.loadBalancerSourceRanges has no %s range: any client can connect to its %[1]s address", family)
		}
	}
}

// withDefaults copies a Service and fills in what Kubernetes would.
func withDefaults(s *corev1.Service) *corev1.Service {
	s = s.DeepCopy()
	spec := &s.Spec
	spec.Type = cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == (intstr.IntOrString{}) {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		return s
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP && (spec.SessionAffinityConfig == nil || spec.SessionAffinityConfig.ClientIP == nil || spec.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil) {
		seconds := int32(DefaultAffinity.Seconds())
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if spec.InternalTrafficPolicy == nil {
		cluster := corev1.ServiceInternalTrafficPolicyCluster
		spec.InternalTrafficPolicy = &cluster
	}
	if spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.ExternalTrafficPolicy = cmp.Or(spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && spec.AllocateLoadBalancerNodePorts == nil {
		yes := true
		spec.AllocateLoadBalancerNodePorts = &yes
	}
	return s
}

// Equal reports whether two memories have the same content.
func (m Memory) Equal(other Memory) bool {
	return maps.EqualFunc(m.Services, other.Services, func(x, y Allocation) bool {
		return x.Order == y.Order && slices.Equal(x.IPs, y.IPs) && maps.Equal(x.NodePorts, y.NodePorts)
	})
}

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// compareAddrs orders addresses, IPv4 first.
func compareAddrs(x, y netip.Addr) int {
	return cmp.Or(cmp.Compare(x.BitLen(), y.BitLen()), bytes.Compare(x.AsSlice(), y.AsSlice()))
}
