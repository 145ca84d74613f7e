// Package machine builds the objects by which a machine is visible in its own API: its Node with the Lease, and the Service kubernetes.
//
// It owns the contents of these objects, and how often their heartbeats are renewed. It must not remember objects, nor set metadata that depends
// on earlier ones (uids, creation times). It is pure: the caller passes the time.
//
// Goroutines: none.
package machine

import (
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/node/apiserver"
)

const (
	// Heartbeat is the maximum age of the heartbeats of the Node's conditions while nothing else changes.
	Heartbeat = 5 * time.Minute
	// RenewEvery is the maximum age of the Node's Lease that readers see.
	RenewEvery = 10 * time.Second
	// APIService is the name of the Service of the API.
	APIService = "kubernetes"
)

// Node returns the Node, with the taint of a cordon and what clients have set. Annotations of monopod have precedence.
func Node(name string, labels map[string]string, taints []corev1.Taint, facts *apiserver.Facts) *corev1.Node {
	n := apiserver.NewNode(name, labels, slices.Clone(taints), facts)
	n.Status.Conditions = slices.Clone(n.Status.Conditions)
	for key, value := range facts.Set.Annotations {
		if _, own := n.Annotations[key]; !own {
			n.Annotations[key] = value
		}
	}
	n.ManagedFields = facts.Set.ManagedFields
	if n.Spec.Unschedulable {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

// Stamp sets the times of the conditions of a Node; before is the previous one, nil if there was none. Heartbeats of unchanged conditions are
// kept for the interval Heartbeat.
func Stamp(n, before *corev1.Node, now metav1.Time) {
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		if before == nil {
			continue
		}
		at := slices.IndexFunc(before.Status.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
		if at < 0 {
			continue
		}
		o := &before.Status.Conditions[at]
		if o.Status != c.Status {
			continue
		}
		c.LastTransitionTime = o.LastTransitionTime
		if o.Reason == c.Reason && o.Message == c.Message && now.Sub(o.LastHeartbeatTime.Time) < Heartbeat {
			c.LastHeartbeatTime = o.LastHeartbeatTime
		}
	}
}

// Due reports whether a Lease, nil if none, must be renewed.
func Due(l *coordinationv1.Lease, now time.Time) bool {
	return l == nil || now.Sub(l.Spec.RenewTime.Time) > RenewEvery || now.Before(l.Spec.RenewTime.Time)
}

// Lease returns the Lease of a Node, renewed now.
func Lease(n *corev1.Node, duration time.Duration, now time.Time) *coordinationv1.Lease {
	renewed, seconds := metav1.NewMicroTime(now), int32(math.Ceil(duration.Seconds()))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: n.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
}

// API consists of the Service kubernetes, by which pods reach the API, and its endpoints.
type API struct {
	Service   *corev1.Service
	Endpoints *corev1.Endpoints
	Slice     *discoveryv1.EndpointSlice
}

// NewAPI returns the API with the address of its Service and that of its backend, as IP:PORT; nil if one of them is invalid.
func NewAPI(service, behind string) *API {
	host, port, ok := splitAddress(service)
	endpoint, target, known := splitAddress(behind)
	if !ok || !known {
		return nil
	}
	family, address, ready := corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, true
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		family, address = corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6
	}
	name, protocol := "https", corev1.ProtocolTCP
	meta := func(label, value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: APIService, Labels: map[string]string{label: value}}
	}
	a := &API{}
	a.Service = &corev1.Service{ObjectMeta: meta("component", "apiserver"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: host, ClusterIPs: []string{host}, IPFamilies: []corev1.IPFamily{family},
		IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), SessionAffinity: corev1.ServiceAffinityNone,
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		Ports:                 []corev1.ServicePort{{Name: name, Protocol: protocol, Port: port, TargetPort: intstr.FromInt32(target)}},
	}}
	a.Service.Labels["provider"] = "kubernetes"
	a.Endpoints = &corev1.Endpoints{ObjectMeta: meta("endpointslice.kubernetes.io/skip-mirror", "true"), Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: endpoint}}, Ports: []corev1.EndpointPort{{Name: name, Port: target, Protocol: protocol}},
	}}}
	a.Slice = &discoveryv1.EndpointSlice{
		ObjectMeta: meta(discoveryv1.LabelServiceName, APIService), AddressType: address,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{endpoint}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}}},
		Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &target, Protocol: &protocol}},
	}
	return a
}

// splitAddress splits HOST:PORT.
func splitAddress(text string) (host string, port int32, ok bool) {
	host, number, err := net.SplitHostPort(text)
	n, bad := strconv.ParseUint(number, 10, 16)
	return host, int32(n), err == nil && bad == nil
}
