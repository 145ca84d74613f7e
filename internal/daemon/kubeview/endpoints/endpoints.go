// Package endpoints computes the Endpoints and EndpointSlices of Services from pods, like the Kubernetes controllers.
//
// It is pure: no clock, no state, no goroutines. It must not know how connections to Services are forwarded.
package endpoints

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/service"
)

// ManagedBy is the value of the managed-by label of EndpointSlices.
const ManagedBy = "endpointslice-controller.k8s.io"

// Max limits the pods behind all Services together, because few manifests make many pairs of both. The kernel has room for no more either.
const Max = service.MaxElements

// Objects are the Endpoints and EndpointSlices of a Service.
type Objects struct {
	Endpoints *corev1.Endpoints
	Slices    []*discoveryv1.EndpointSlice
	// pods are those behind the Service; truncated reports that there are more of them.
	pods      []Backend
	truncated bool
}

// Of returns the objects of the Services whose endpoints are computed from pods. The objects of a Service are those of before, unless the
// Service or a pod behind it is another one; new ones have no uids and times.
func Of(services []*corev1.Service, pods []*corev1.Pod, o *model.Origins, before map[*corev1.Service]*Objects) map[*corev1.Service]*Objects {
	index, room, all := NewIndex(pods), Max, make(map[*corev1.Service]*Objects, len(services))
	truncation := map[string]string{corev1.EndpointsOverCapacity: "truncated"} // as of the controller of Endpoints; shared by all objects
	for _, s := range services {
		if !Computed(s) {
			continue
		}
		behind := index.Behind(s, o)
		part := slices.Clone(behind[:min(len(behind), room)]) // it is kept
		room -= len(part)
		truncated := len(part) < len(behind)
		if e := before[s]; e != nil && e.truncated == truncated && slices.EqualFunc(e.pods, part, func(a, b Backend) bool { return a.Pod == b.Pod }) {
			all[s] = e
			continue
		}
		e := &Objects{Endpoints(s, part), Slices(s, part), part, truncated}
		if truncated {
			e.Endpoints.Annotations = truncation
			for _, one := range e.Slices {
				one.Annotations = truncation
			}
		}
		all[s] = e
	}
	return all
}

// Backend is a pod that may be behind Services.
type Backend struct {
	*corev1.Pod
	// reference is shared by the objects of all Services.
	reference *corev1.ObjectReference
}

// Index finds pods by namespace.
type Index map[string][]Backend

// NewIndex indexes the pods that have addresses and have not terminated, sorted by name.
func NewIndex(pods []*corev1.Pod) Index {
	x := Index{}
	for _, p := range pods {
		if p.Status.PodIP != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			x[p.Namespace] = append(x[p.Namespace], Backend{p, &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}})
		}
	}
	for _, list := range x {
		slices.SortFunc(list, func(a, b Backend) int { return cmp.Compare(a.Name, b.Name) })
	}
	return x
}

// Behind returns the pods that a Service selects; none if it has no selector.
func (x Index) Behind(s *corev1.Service, o *model.Origins) []Backend {
	if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	match := labels.SelectorFromSet(s.Spec.Selector)
	var out []Backend
	for _, p := range x[s.Namespace] {
		if match.Matches(labels.Set(p.Labels)) && o.Selects(s, p.Pod) {
			out = append(out, p)
		}
	}
	return out
}

// maxListed is how many endpoints of a port are listed in words.
const maxListed = 8

// Words returns a function that lists the ready endpoints of a Service, one port on each line; empty if they are not computed from pods.
func Words(e model.Endpoints) func(*corev1.Service) string {
	index := NewIndex(e.Pods)
	return func(s *corev1.Service) string {
		if !Computed(s) {
			return ""
		}
		return strings.Join(lines(s, index.Behind(s, e.Origins)), "\n")
	}
}

func lines(s *corev1.Service, pods []Backend) (all []string) {
	ports := s.Spec.Ports
	if len(ports) == 0 {
		ports = make([]corev1.ServicePort, 1) // the addresses alone
	}
	for i := range ports {
		var to []string
		for _, pod := range pods {
			if pod.DeletionTimestamp != nil || !manifests.IsReady(pod.Pod) && !s.Spec.PublishNotReadyAddresses {
				continue
			}
			number := manifests.TargetPort(&ports[i], pod.Pod)
			switch {
			case len(s.Spec.Ports) == 0:
				to = append(to, pod.Status.PodIP)
			case number != 0:
				to = append(to, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(number))))
			}
		}
		if n := len(to); n > maxListed {
			to = append(to[:maxListed], fmt.Sprintf("and %d more", n-maxListed))
		}
		text := cmp.Or(strings.Join(to, ", "), "<none>")
		if p := &ports[i]; p.Port != 0 {
			text = fmt.Sprintf("%d/%s -> %s", p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP), text)
		}
		all = append(all, text)
	}
	return all
}

// Computed reports whether the endpoints of a Service are computed from pods.
func Computed(s *corev1.Service) bool {
	return len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
}

// port is one port of endpoints. It is comparable.
type port struct {
	name        string
	protocol    corev1.Protocol
	number      int32
	appProtocol string
}

// portsOf returns the ports of a pod behind a Service.
func portsOf(s *corev1.Service, pod *corev1.Pod) []port {
	ports := make([]port, 0, len(s.Spec.Ports))
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		number := manifests.TargetPort(p, pod)
		if number == 0 {
			continue
		}
		one := port{name: p.Name, protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), number: number}
		if p.AppProtocol != nil {
			one.appProtocol = *p.AppProtocol
		}
		ports = append(ports, one)
	}
	return ports
}

func key(ports []port) string { return fmt.Sprint(ports) }

// group are pods with the same ports.
type group struct {
	ports []port
	pods  []Backend
}

// grouped returns groups of pods by their ports, in a stable order.
func grouped(s *corev1.Service, pods []Backend) []*group {
	byPorts := map[string]*group{}
	for _, p := range pods {
		ports := portsOf(s, p.Pod)
		if len(ports) == 0 && len(s.Spec.Ports) > 0 {
			continue
		}
		k := key(ports)
		if byPorts[k] == nil {
			byPorts[k] = &group{ports: ports}
		}
		byPorts[k].pods = append(byPorts[k].pods, p)
	}
	var all []*group
	for _, k := range slices.Sorted(maps.Keys(byPorts)) {
		all = append(all, byPorts[k])
	}
	return all
}

// hostname returns the name of a pod in the domain of a Service; empty if it has none.
func hostname(s *corev1.Service, p *corev1.Pod) string {
	if p.Spec.Hostname != "" && p.Spec.Subdomain == s.Name {
		return p.Spec.Hostname
	}
	return ""
}

// Endpoints returns the Endpoints of a Service without uid and times. Terminating pods are omitted.
func Endpoints(s *corev1.Service, pods []Backend) *corev1.Endpoints {
	e := &corev1.Endpoints{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: maps.Clone(s.Labels)},
	}
	if e.Labels == nil {
		e.Labels = map[string]string{}
	}
	e.Labels["endpoints.kubernetes.io/managed-by"] = "endpoint-controller"
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" {
		e.Labels[corev1.IsHeadlessService] = ""
	}
	for _, g := range grouped(s, pods) {
		subset := corev1.EndpointSubset{}
		for _, p := range g.pods {
			if p.DeletionTimestamp != nil && !s.Spec.PublishNotReadyAddresses {
				continue
			}
			ip := addressOf(p.Pod, familyOf(s))
			if ip == "" {
				continue
			}
			a := corev1.EndpointAddress{IP: ip, Hostname: hostname(s, p.Pod), TargetRef: p.reference}
			if p.Spec.NodeName != "" {
				a.NodeName = &p.Spec.NodeName
			}
			if manifests.IsReady(p.Pod) || s.Spec.PublishNotReadyAddresses {
				subset.Addresses = append(subset.Addresses, a)
			} else {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
			}
		}
		for _, p := range g.ports {
			one := corev1.EndpointPort{Name: p.name, Port: p.number, Protocol: p.protocol}
			if p.appProtocol != "" {
				one.AppProtocol = &p.appProtocol
			}
			subset.Ports = append(subset.Ports, one)
		}
		if len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
			e.Subsets = append(e.Subsets, subset)
		}
	}
	return e
}

// familyOf returns the address family of the Endpoints.
func familyOf(s *corev1.Service) corev1.IPFamily {
	if len(s.Spec.IPFamilies) > 0 {
		return s.Spec.IPFamilies[0]
	}
	return ""
}

func isFamily(ip string, family corev1.IPFamily) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && (family == "" || a.Unmap().Is4() == (family == corev1.IPv4Protocol))
}

// addressOf returns the first address of a pod in a family, or its first address if the family is empty.
func addressOf(p *corev1.Pod, family corev1.IPFamily) string {
	for _, ip := range p.Status.PodIPs {
		if isFamily(ip.IP, family) {
			return ip.IP
		}
	}
	if len(p.Status.PodIPs) == 0 && isFamily(p.Status.PodIP, family) {
		return p.Status.PodIP
	}
	return ""
}

// families returns the address families of a Service, or, if it names none, those of its pods.
func families(s *corev1.Service, pods []Backend) []corev1.IPFamily {
	if len(s.Spec.IPFamilies) > 0 {
		return s.Spec.IPFamilies
	}
	var found []corev1.IPFamily
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if slices.ContainsFunc(pods, func(p Backend) bool { return addressOf(p.Pod, f) != "" }) {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		found = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return found
}

// maxEndpoints is the maximum number of endpoints in a slice.
const maxEndpoints = 100

// Slices returns the EndpointSlices of a Service without uid and times: at least one per address family.
func Slices(s *corev1.Service, pods []Backend) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	groups := grouped(s, pods)
	for _, family := range families(s, pods) {
		before := len(all)
		for _, g := range groups {
			for n, part := range chunks(g, family, s) {
				all = append(all, slice(s, family, g.ports, part, n))
			}
		}
		if len(all) == before {
			all = append(all, slice(s, family, nil, nil, 0))
		}
	}
	return all
}

// chunks returns the endpoints of a group in slices of at most maxEndpoints.
func chunks(g *group, family corev1.IPFamily, s *corev1.Service) [][]discoveryv1.Endpoint {
	var all []discoveryv1.Endpoint
	for _, p := range g.pods {
		ip := addressOf(p.Pod, family)
		if ip == "" {
			continue
		}
		serving, terminating := manifests.IsReady(p.Pod) || s.Spec.PublishNotReadyAddresses, p.DeletionTimestamp != nil
		ready := s.Spec.PublishNotReadyAddresses || serving && !terminating
		e := discoveryv1.Endpoint{
			Addresses: []string{ip}, TargetRef: p.reference,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		}
		if p.Spec.NodeName != "" {
			e.NodeName = &p.Spec.NodeName
		}
		if h := hostname(s, p.Pod); h != "" {
			e.Hostname = &h
		}
		all = append(all, e)
	}
	return slices.Collect(slices.Chunk(all, maxEndpoints))
}

func slice(s *corev1.Service, family corev1.IPFamily, ports []port, endpoints []discoveryv1.Endpoint, n int) *discoveryv1.EndpointSlice {
	sum := sha256.Sum256([]byte(strings.Join([]string{s.Namespace, s.Name, string(family), key(ports), fmt.Sprint(n)}, "\n")))
	yes := true
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name + "-" + hex.EncodeToString(sum[:3])[:5], Labels: maps.Clone(s.Labels),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID, Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		AddressType: discoveryv1.AddressType(family), Endpoints: endpoints,
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[discoveryv1.LabelServiceName], out.Labels[discoveryv1.LabelManagedBy] = s.Name, ManagedBy
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" {
		out.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range ports {
		one := discoveryv1.EndpointPort{Name: &p.name, Port: &p.number, Protocol: &p.protocol}
		if p.appProtocol != "" {
			one.AppProtocol = &p.appProtocol
		}
		out.Ports = append(out.Ports, one)
	}
	return out
}
