package manifests

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// TargetPort returns the pod port for a Service port; 0 if the pod has no port with the target name. Names match only ports of the same
// protocol. Containers take precedence over sidecars, and other init containers are ignored, as in k8s.io/endpointslice.
func TargetPort(port *corev1.ServicePort, pod *corev1.Pod) int32 {
	name := port.TargetPort.StrVal
	if name == "" {
		return cmp.Or(port.TargetPort.IntVal, port.Port)
	}
	for i := range pod.Spec.Containers {
		if n := namedPort(&pod.Spec.Containers[i], name, port.Protocol); n != 0 {
			return n
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if n := namedPort(c, name, port.Protocol); n != 0 && IsSidecar(c) {
			return n
		}
	}
	return 0
}

// namedPort returns the port of a container with a name and protocol; 0 if it has none.
func namedPort(c *corev1.Container, name string, protocol corev1.Protocol) int32 {
	for _, p := range c.Ports {
		if p.Name == name && cmp.Or(p.Protocol, corev1.ProtocolTCP) == cmp.Or(protocol, corev1.ProtocolTCP) {
			return p.ContainerPort
		}
	}
	return 0
}
