package service

import (
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxEnv is more than the size of the variables that a container may have, even if Services share some.
const maxEnv = 640 << 10

// Env returns the environment variables with the cluster IPs and ports of the Services in a namespace, as a kubelet sets them with
// enableServiceLinks. services must come from Assign. If they are far too many for a container, some are missing: it cannot be started either
// way, and all of them would take memory.
func Env(services []*corev1.Service, namespace string) map[string]string {
	out := map[string]string{}
	size := 0
	for _, s := range services {
		if s.Namespace != namespace || s.Spec.ClusterIP == "" || !HasIP(s) {
			continue
		}
		if size += variables(out, s); size > maxEnv {
			break
		}
	}
	return out
}

// variables adds the variables of one Service, and returns their size.
func variables(out map[string]string, s *corev1.Service) (size int) {
	set := func(name, value string) {
		out[name] = value
		size += len(name) + len("=") + len(value)
	}
	name, ip := upper(s.Name), s.Spec.ClusterIP
	set(name+"_SERVICE_HOST", ip)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		number, protocol := strconv.Itoa(int(p.Port)), strings.ToLower(string(p.Protocol))
		address := protocol + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			set(name+"_SERVICE_PORT", number)
			set(name+"_PORT", address)
		}
		if p.Name != "" {
			set(name+"_SERVICE_PORT_"+upper(p.Name), number)
		}
		link := name + "_PORT_" + number + "_" + strings.ToUpper(protocol)
		set(link, address)
		set(link+"_PROTO", protocol)
		set(link+"_PORT", number)
		set(link+"_ADDR", ip)
	}
	return size
}

// upper converts a name for use in a variable name.
func upper(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
