package service

import (
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Env returns the environment variables with the cluster IPs and ports of the Services in a namespace, as a kubelet sets them with
// enableServiceLinks. services must come from Assign.
func Env(services []*corev1.Service, namespace string) map[string]string {
	out := map[string]string{}
	for _, s := range services {
		if s.Namespace == namespace && s.Spec.ClusterIP != "" && HasIP(s) {
			variables(out, s)
		}
	}
	return out
}

// variables adds the variables of one Service.
func variables(out map[string]string, s *corev1.Service) {
	name, ip := upper(s.Name), s.Spec.ClusterIP
	out[name+"_SERVICE_HOST"] = ip
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		number, protocol := strconv.Itoa(int(p.Port)), strings.ToLower(string(p.Protocol))
		address := protocol + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			out[name+"_SERVICE_PORT"], out[name+"_PORT"] = number, address
		}
		if p.Name != "" {
			out[name+"_SERVICE_PORT_"+upper(p.Name)] = number
		}
		link := name + "_PORT_" + number + "_" + strings.ToUpper(protocol)
		out[link], out[link+"_PROTO"], out[link+"_PORT"], out[link+"_ADDR"] = address, protocol, number, ip
	}
}

// upper converts a name for use in a variable name.
func upper(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
