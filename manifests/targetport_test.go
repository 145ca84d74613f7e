package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestTargetPort(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(policy *corev1.ContainerRestartPolicy, ports ...corev1.ContainerPort) corev1.Container {
		return corev1.Container{RestartPolicy: policy, Ports: ports}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			container(nil, corev1.ContainerPort{Name: "prepare", ContainerPort: 1}, corev1.ContainerPort{Name: "http", ContainerPort: 2}),
			container(&always, corev1.ContainerPort{Name: "http", ContainerPort: 3}, corev1.ContainerPort{Name: "metrics", ContainerPort: 4}),
		},
		Containers: []corev1.Container{
			container(nil, corev1.ContainerPort{Name: "dns", Protocol: corev1.ProtocolUDP, ContainerPort: 5}),
			container(nil, corev1.ContainerPort{Name: "http", Protocol: corev1.ProtocolTCP, ContainerPort: 6}, corev1.ContainerPort{Name: "dns", ContainerPort: 7}),
		},
	}}
	for name, test := range map[string]struct {
		port corev1.ServicePort
		want int32
	}{
		"a container before a sidecar":     {corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("http")}, 6},
		"a sidecar":                        {corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("metrics")}, 4},
		"not an init container":            {corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("prepare")}, 0},
		"no such name":                     {corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("other")}, 0},
		"by protocol: UDP":                 {corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")}, 5},
		"by protocol: TCP":                 {corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("dns")}, 7},
		"by number":                        {corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(8080)}, 8080},
		"without: the port of the Service": {corev1.ServicePort{Port: 80}, 80},
	} {
		if got := TargetPort(&test.port, pod); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
