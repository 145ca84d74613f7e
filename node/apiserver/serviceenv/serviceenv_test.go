package serviceenv_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/serviceenv"
)

func TestTheAddressOfTheAPIServerForAPod(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}
	host := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}}
	for _, tt := range []struct {
		pod    *corev1.Pod
		server string
		node   *corev1.Node
		want   string
	}{
		{&corev1.Pod{}, "https://10.0.0.1:6443", node, "10.0.0.1 6443 true"},
		{&corev1.Pod{}, "https://api.example.com", node, "api.example.com 443 true"},
		{&corev1.Pod{}, "http://10.0.0.1", node, "10.0.0.1 80 true"},
		{&corev1.Pod{}, "https://[2001:db8::1]:6443/path", node, "2001:db8::1 6443 true"},
		{&corev1.Pod{}, "https://127.0.0.1:6443", node, "192.0.2.1 6443 true"},
		{&corev1.Pod{}, "https://localhost:6443", node, "192.0.2.1 6443 true"},
		{&corev1.Pod{}, "https://127.0.0.1:6443", nil, "  false"},
		{host, "https://127.0.0.1:6443", nil, "127.0.0.1 6443 true"},
		{&corev1.Pod{}, "", node, "  false"},
	} {
		host, port, ok := serviceenv.Address(tt.pod, tt.server, tt.node)
		if got := fmt.Sprintf("%s %s %v", host, port, ok); got != tt.want {
			t.Errorf("%s: %s", tt.server, got)
		}
	}
}

func TestVariablesAreOfOneService(t *testing.T) {
	for _, v := range serviceenv.Variables("10.0.0.1", "6443") {
		if !serviceenv.Is(v.Name) || v.Value == "" {
			t.Errorf("%+v", v)
		}
	}
	for _, name := range []string{"KUBERNETES", "KUBERNETES_SERVICE_HOSTS", "WEB_SERVICE_HOST", "KUBERNETES_PORTS"} {
		if serviceenv.Is(name) {
			t.Error(name)
		}
	}
}
