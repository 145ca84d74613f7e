package trial

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationFreeHostPorts asks for ports of this machine that are free: "all", or names or numbers of container ports
// with commas between.
const AnnotationFreeHostPorts = "monopod.dev/free-host-ports"

// FreeHostPorts gives a pod the host ports that it asks for. take finds one that is free. A pod that asks for none is
// returned as it is.
func FreeHostPorts(pod *corev1.Pod, take func(protocol corev1.Protocol, hostIP string) (int32, error)) (*corev1.Pod, error) {
	asked := pod.Annotations[AnnotationFreeHostPorts]
	if asked == "" {
		return pod, nil
	}
	if pod.Spec.HostNetwork {
		return nil, fmt.Errorf("%s: a pod on the host network has the ports that its containers open", AnnotationFreeHostPorts)
	}
	names := askedFor(asked)
	out, found := pod.DeepCopy(), map[string]bool{}
	for _, list := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for c := range list {
			for i := range list[c].Ports {
				p := &list[c].Ports[i]
				if !wants(names, *p, found) || p.HostPort != 0 { // a port that is written down stays
					continue
				}
				port, err := take(p.Protocol, p.HostIP)
				if err != nil {
					return nil, fmt.Errorf("find a free port for port %d of container %s: %w", p.ContainerPort, list[c].Name, err)
				}
				p.HostPort = port
			}
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("%s: no container has a port %q", AnnotationFreeHostPorts, name)
		}
	}
	return out, nil
}

// GivenHostPorts are the ports with host ports that FreeHostPorts has given a pod, or found written down among those that
// it asks for.
func GivenHostPorts(pod *corev1.Pod) (given []corev1.ContainerPort) {
	asked := pod.Annotations[AnnotationFreeHostPorts]
	if asked == "" {
		return nil
	}
	names := askedFor(asked)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			for _, p := range c.Ports {
				if p.HostPort != 0 && wants(names, p, map[string]bool{}) {
					given = append(given, p)
				}
			}
		}
	}
	return given
}

// askedFor splits the value of the annotation.
func askedFor(text string) (names []string) {
	for name := range strings.SplitSeq(text, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	return names
}

// wants reports whether names contains a port, and records the matching name in found.
func wants(names []string, p corev1.ContainerPort, found map[string]bool) bool {
	wanted := false
	for _, name := range names {
		if name == "all" || name == strconv.Itoa(int(p.ContainerPort)) || p.Name != "" && name == p.Name {
			wanted, found[name] = true, true
		}
	}
	return wanted
}
