package validate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
)

// maxAffinitySeconds is a day.
const maxAffinitySeconds = 86400

// service checks the spec of a Service. Absent fields are defaulted or allocated later.
func (c objectsChecker) service(o *corev1.Service) {
	path, s := field.NewPath("spec"), &o.Spec
	headless := s.ClusterIP == corev1.ClusterIPNone
	if len(s.Ports) == 0 && !headless && s.Type != corev1.ServiceTypeExternalName {
		c.Required(path.Child("ports"), "")
	}
	switch s.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if headless {
			c.Invalid(path.Child("clusterIPs").Index(0), s.ClusterIP, fmt.Sprintf("may not be set to 'None' for %s services", s.Type))
		}
	case corev1.ServiceTypeExternalName:
		c.externalName(path, s)
	case "", corev1.ServiceTypeClusterIP:
	default:
		c.Add(field.NotSupported(path.Child("type"), s.Type, []corev1.ServiceType{
			corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort,
		}))
	}
	c.servicePorts(path.Child("ports"), s)
	c.Add(metavalidation.ValidateLabels(s.Selector, path.Child("selector"))...)
	c.affinity(path, s)
	if s.Type != corev1.ServiceTypeExternalName {
		c.serviceAddresses(path, s)
	}
	for i, ip := range s.ExternalIPs {
		c.Add(validation.IsValidIPForLegacyField(path.Child("externalIPs").Index(i), ip, true, nil)...)
	}
	c.ofLoadBalancers(path, s)
	c.traffic(path, s)
}

func (c objectsChecker) externalName(path *field.Path, s *corev1.ServiceSpec) {
	for name, set := range map[string]bool{
		"clusterIPs": s.ClusterIP != "" || len(s.ClusterIPs) > 0, "ipFamilies": len(s.IPFamilies) > 0, "ipFamilyPolicy": s.IPFamilyPolicy != nil,
	} {
		if set {
			c.Forbidden(path.Child(name), "may not be set for ExternalName services")
		}
	}
	if name := strings.TrimSuffix(s.ExternalName, "."); name != "" {
		c.Subdomain(path.Child("externalName"), name)
	} else {
		c.Required(path.Child("externalName"), "")
	}
}

func (c objectsChecker) servicePorts(path *field.Path, s *corev1.ServiceSpec) {
	type used struct {
		protocol corev1.Protocol
		port     int32
	}
	names, ports, nodePorts := map[string]bool{}, map[used]bool{}, map[used]bool{}
	for i := range s.Ports {
		p, at := &s.Ports[i], path.Index(i)
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		c.portName(at.Child("name"), p.Name, len(s.Ports) > 1, names)
		c.Invalid(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port))...)
		check.OneOf(c.Checker, at.Child("protocol"), protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
		switch t := p.TargetPort; {
		case t == intstr.IntOrString{}, t == intstr.FromString(""):
		case t.Type == intstr.Int:
			c.Invalid(at.Child("targetPort"), t.IntVal, validation.IsValidPortNum(int(t.IntVal))...)
		default:
			c.Invalid(at.Child("targetPort"), t.StrVal, validation.IsValidPortName(t.StrVal)...)
		}
		if p.AppProtocol != nil {
			c.QualifiedName(at.Child("appProtocol"), *p.AppProtocol)
		}
		switch n := (used{protocol, p.NodePort}); {
		case p.NodePort == 0:
		case s.Type == "" || s.Type == corev1.ServiceTypeClusterIP:
			c.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'")
		case nodePorts[n]:
			c.Add(field.Duplicate(at.Child("nodePort"), p.NodePort))
		default:
			nodePorts[n] = true
		}
		if n := (used{protocol, p.Port}); ports[n] {
			c.Add(field.Duplicate(at, corev1.ServicePort{Protocol: protocol, Port: p.Port}))
		} else {
			ports[n] = true
		}
	}
}

// portName checks the name of a port, which is required if there are several.
func (c objectsChecker) portName(path *field.Path, name string, needed bool, names map[string]bool) {
	switch {
	case name == "" && needed:
		c.Required(path, "")
	case name != "":
		c.Label(path, name)
		if names[name] {
			c.Add(field.Duplicate(path, name))
		}
		names[name] = true
	}
}

func (c objectsChecker) affinity(path *field.Path, s *corev1.ServiceSpec) {
	at := path.Child("sessionAffinityConfig")
	switch config := s.SessionAffinityConfig; s.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		if config != nil {
			c.Forbidden(at, "must not be set when session affinity is None")
		}
	case corev1.ServiceAffinityClientIP:
		if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
			return
		}
		if n := *config.ClientIP.TimeoutSeconds; n <= 0 || n > maxAffinitySeconds {
			c.Invalid(at.Child("clientIP", "timeoutSeconds"), n, fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds))
		}
	default:
		check.OneOf(c.Checker, path.Child("sessionAffinity"), s.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	}
}

// serviceAddresses checks cluster IPs and their families.
func (c objectsChecker) serviceAddresses(path *field.Path, s *corev1.ServiceSpec) {
	at, all := path.Child("clusterIPs"), s.ClusterIPs
	switch {
	case s.ClusterIP == "" && len(all) > 0:
		c.Invalid(at, all, "must be empty when `clusterIP` is not specified")
	case s.ClusterIP != "" && len(all) == 0:
		all = []string{s.ClusterIP} // an API server copies it
	case s.ClusterIP != "" && all[0] != s.ClusterIP:
		c.Invalid(at, all, "first value must match `clusterIP`")
	}
	seen := map[corev1.IPFamily]bool{}
	for i, family := range s.IPFamilies {
		check.OneOf(c.Checker, path.Child("ipFamilies").Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if seen[family] {
			c.Add(field.Duplicate(path.Child("ipFamilies").Index(i), family))
		}
		seen[family] = true
	}
	if p := s.IPFamilyPolicy; p != nil {
		check.OneOf(c.Checker, path.Child("ipFamilyPolicy"), *p, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)
	}
	for i, ip := range all {
		switch {
		case ip != corev1.ClusterIPNone:
			c.Add(validation.IsValidIPForLegacyField(at.Index(i), ip, true, nil)...)
		case len(all) > 1:
			c.Invalid(at, all, "'None' must be the first and only value")
		}
	}
	if len(all) > 2 {
		c.Invalid(at, all, "may only hold up to 2 values")
	}
}

// ofLoadBalancers checks the fields that only Services of type LoadBalancer may have.
func (c objectsChecker) ofLoadBalancers(path *field.Path, s *corev1.ServiceSpec) {
	const only = "may only be used when `type` is 'LoadBalancer'"
	is := s.Type == corev1.ServiceTypeLoadBalancer
	if len(s.LoadBalancerSourceRanges) > 0 {
		at := path.Child("LoadBalancerSourceRanges")
		if !is {
			c.Forbidden(at, only)
		}
		for i, cidr := range s.LoadBalancerSourceRanges {
			c.Add(validation.IsValidCIDRForLegacyField(at.Index(i), strings.TrimSpace(cidr), true, nil)...)
		}
	}
	if s.AllocateLoadBalancerNodePorts != nil && !is {
		c.Forbidden(path.Child("allocateLoadBalancerNodePorts"), only)
	}
	switch class := s.LoadBalancerClass; {
	case class == nil:
	case !is:
		c.Forbidden(path.Child("loadBalancerClass"), only)
	default:
		c.QualifiedName(path.Child("loadBalancerClass"), *class)
	}
}

// traffic checks the traffic policies.
func (c objectsChecker) traffic(path *field.Path, s *corev1.ServiceSpec) {
	outside := s.Type == corev1.ServiceTypeLoadBalancer || s.Type == corev1.ServiceTypeNodePort || s.Type != corev1.ServiceTypeExternalName && len(s.ExternalIPs) > 0
	switch at, p := path.Child("externalTrafficPolicy"), s.ExternalTrafficPolicy; {
	case p == "":
	case !outside:
		c.Invalid(at, p, "may only be set for externally-accessible services")
	default:
		check.OneOf(c.Checker, at, p, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	if n := s.HealthCheckNodePort; n != 0 {
		at := path.Child("healthCheckNodePort")
		if s.Type != corev1.ServiceTypeLoadBalancer || s.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
			c.Invalid(at, n, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
		} else {
			c.Invalid(at, n, validation.IsValidPortNum(int(n))...)
		}
	}
	if p := s.InternalTrafficPolicy; p != nil {
		check.OneOf(c.Checker, path.Child("internalTrafficPolicy"), *p, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	if d := s.TrafficDistribution; d != nil {
		check.OneOf(c.Checker, path.Child("trafficDistribution"), *d,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
	}
}
