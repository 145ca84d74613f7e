package strategy

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Allocated fields of a Service are kept if a client does not send them, and removed if the new type does not have them, as in
// kube-apiserver.

// keepAssigned restores allocated fields in an update of a Service.
func keepAssigned(old, now *corev1.ServiceSpec) {
	if hasAddress(old) && hasAddress(now) {
		if now.ClusterIP == "" && len(now.ClusterIPs) == 0 {
			now.ClusterIP, now.ClusterIPs = old.ClusterIP, slices.Clone(old.ClusterIPs)
		}
		if len(now.IPFamilies) == 0 {
			now.IPFamilies = slices.Clone(old.IPFamilies)
		}
		if now.IPFamilyPolicy == nil {
			now.IPFamilyPolicy = old.IPFamilyPolicy
		}
	}
	if now.ClusterIP != "" && (len(now.ClusterIPs) == 0 || now.ClusterIP != old.ClusterIP && slices.Equal(now.ClusterIPs, old.ClusterIPs)) {
		now.ClusterIPs = []string{now.ClusterIP}
	}
	if hasNodePorts(old) && hasNodePorts(now) {
		keepNodePorts(old, now)
	}
	if checksHealth(old) && checksHealth(now) && now.HealthCheckNodePort == 0 {
		now.HealthCheckNodePort = old.HealthCheckNodePort
	}
}

// keepNodePorts restores the node ports of ports that are sent without one.
func keepNodePorts(old, now *corev1.ServiceSpec) {
	taken := map[int32]bool{}
	for i := range now.Ports {
		taken[now.Ports[i].NodePort] = true
	}
	for i := range now.Ports {
		p := &now.Ports[i]
		at := slices.IndexFunc(old.Ports, func(o corev1.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol })
		if p.NodePort == 0 && at >= 0 && !taken[old.Ports[at].NodePort] {
			p.NodePort = old.Ports[at].NodePort
			taken[p.NodePort] = true
		}
	}
}

// dropAssigned removes allocated fields that the new type of a Service does not have, unless the client changed them.
func dropAssigned(old, now *corev1.ServiceSpec) {
	dropAddress(old, now)
	dropNodePorts(old, now)
	if checksHealth(old) && !checksHealth(now) && now.HealthCheckNodePort == old.HealthCheckNodePort {
		now.HealthCheckNodePort = 0
	}
	if old.Type == corev1.ServiceTypeLoadBalancer && now.Type != old.Type {
		if reflect.DeepEqual(now.AllocateLoadBalancerNodePorts, old.AllocateLoadBalancerNodePorts) {
			now.AllocateLoadBalancerNodePorts = nil
		}
		if reflect.DeepEqual(now.LoadBalancerClass, old.LoadBalancerClass) {
			now.LoadBalancerClass = nil
		}
	}
	if isOutside(old) && !isOutside(now) && now.ExternalTrafficPolicy == old.ExternalTrafficPolicy {
		now.ExternalTrafficPolicy = ""
	}
}

func dropAddress(old, now *corev1.ServiceSpec) {
	if hasAddress(old) && !hasAddress(now) {
		if now.ClusterIP == old.ClusterIP && slices.Equal(now.ClusterIPs, old.ClusterIPs) {
			now.ClusterIP, now.ClusterIPs = "", nil
		}
		if slices.Equal(now.IPFamilies, old.IPFamilies) {
			now.IPFamilies = nil
		}
		if reflect.DeepEqual(now.IPFamilyPolicy, old.IPFamilyPolicy) {
			now.IPFamilyPolicy = nil
		}
		if reflect.DeepEqual(now.InternalTrafficPolicy, old.InternalTrafficPolicy) {
			now.InternalTrafficPolicy = nil
		}
	}
}

func dropNodePorts(old, now *corev1.ServiceSpec) {
	if !hasNodePorts(old) || hasNodePorts(now) {
		return
	}
	had := map[int32]bool{0: true}
	for i := range old.Ports {
		had[old.Ports[i].NodePort] = true
	}
	if slices.ContainsFunc(now.Ports, func(p corev1.ServicePort) bool { return !had[p.NodePort] }) {
		return
	}
	for i := range now.Ports {
		now.Ports[i].NodePort = 0
	}
}

func hasAddress(s *corev1.ServiceSpec) bool { return s.Type != corev1.ServiceTypeExternalName }

func hasNodePorts(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
}

func checksHealth(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeLoadBalancer && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func isOutside(s *corev1.ServiceSpec) bool {
	return hasNodePorts(s) || hasAddress(s) && len(s.ExternalIPs) > 0
}

// immutableService returns errors for changes to allocated fields, which are immutable once set.
func immutableService(spec *field.Path, old, now *corev1.ServiceSpec) (errs field.ErrorList) {
	headless := old.ClusterIP == corev1.ClusterIPNone && now.ClusterIP == corev1.ClusterIPNone
	if at := spec.Child("clusterIPs").Index(0); hasAddress(old) && hasAddress(now) && !headless && len(old.ClusterIPs) > 0 {
		switch {
		case len(now.ClusterIPs) == 0:
			errs = append(errs, field.Invalid(at, now.ClusterIPs, "primary clusterIP can not be unset"))
		case now.ClusterIPs[0] != old.ClusterIPs[0]:
			errs = append(errs, field.Invalid(at, now.ClusterIPs, "may not change once set"))
		}
	}
	if hasAddress(old) && hasAddress(now) && len(old.IPFamilies) > 0 && len(now.IPFamilies) > 0 && old.IPFamilies[0] != now.IPFamilies[0] {
		errs = append(errs, field.Invalid(spec.Child("ipFamilies").Index(0), now.IPFamilies, "may not change once set"))
	}
	if old.Type == corev1.ServiceTypeLoadBalancer && now.Type == old.Type && !reflect.DeepEqual(old.LoadBalancerClass, now.LoadBalancerClass) {
		errs = append(errs, field.Invalid(spec.Child("loadBalancerClass"), now.LoadBalancerClass, "may not change once set"))
	}
	if checksHealth(old) && checksHealth(now) && old.HealthCheckNodePort != now.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(spec.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}
